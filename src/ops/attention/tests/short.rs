//! Tests of segments that fit into one block of a GPU, and of the rows that pad its tiles.

use super::{bounds, compare, compare_within};
use crate::attention;
use crate::attention::{Activations, Reach, Segments};
use crate::dropout::Dropout;
use crate::testing::{DTYPES, double, fresh_in, on_each_device, on_host, placed};
use base::rng::{Purpose, Stream};

/// A GPU computes all gradients of a batch in one launch if its segments have at most 128 tokens, and in two
/// launches if one is longer.
#[test]
fn segments_that_one_block_has_room_for_are_the_reference() {
    let dropout = Dropout { probability: 0.3, stream: Stream::new(3, Purpose::Dropout, 5) };
    on_each_device(|| {
        compare(2, 64, &[1, 128, 0, 17], Some(&dropout));
        compare(1, 32, &[127, 33], Some(&dropout));
        compare(2, 64, &[32, 65], None);
        compare_within(Reach::window(20), 1, 32, &[16, 98], Some(&dropout));
        compare_within(Reach::window(5), 1, 64, &[15, 129], Some(&dropout));
        compare_within(Reach::ALL.causal(), 2, 64, &[1, 128, 0, 17], Some(&dropout));
        compare_within(Reach::window(30).causal(), 1, 32, &[127, 33], None);
    });
}

/// The rows that pad a segment's last tile have scores of 0; relative to these, the probabilities would be
/// infinite.
#[test]
fn scores_far_below_zero_are_no_worse_than_others() {
    on_each_device(|| {
        for (dtype, length) in DTYPES.into_iter().flat_map(|dtype| [(dtype, 17), (dtype, 135)]) {
            let [q, k, v] = [(1, 10.0), (2, -10.0), (3, 0.0)]
                .map(|(id, mean)| on_host(&fresh_in((length, 64), id, dtype)).affine(1.0, mean).unwrap())
                .map(|t| placed(&t));
            let cu_seqlens = bounds(&[length as u32]);
            let token_keys = vec![0; length];
            let segments = Segments {
                heads: 1,
                cu_seqlens: (&cu_seqlens).into(),
                token_keys: (&token_keys).into(),
                reach: Reach::ALL,
                dropout: None,
            };
            let (o, saved) = attention::forward(&q, &k, &v, &segments).unwrap();
            let activations = Activations { q_td: &q, k_td: &k, v_td: &v, o_td: &o };
            let gradients = attention::backward(&v, activations, &saved, &segments).unwrap();
            for t in gradients {
                let values = double(&t).flatten_all().unwrap().to_vec1::<f64>().unwrap();
                assert!(values.iter().all(|value| value.is_finite()), "{dtype:?}, {length} tokens");
                assert!(values.iter().any(|value| *value != 0.0), "{dtype:?}, {length} tokens");
            }
        }
    });
}

//! Tests of dropout keys that do not fit into a counter.

use crate::attention;
use crate::attention::{Reach, Segments};
use crate::cuda::Gpu;
use crate::dropout::Dropout;
use crate::testing::{fresh, on_each_device};
use base::rng::{Purpose, Stream};

/// The key of a row of probabilities is the token's key times the number of heads plus the head, and has 48
/// bits.
#[test]
fn keys_that_would_lose_bits_are_refused_by_a_gpu() {
    let dropout = Dropout { probability: 0.1, stream: Stream::new(1, Purpose::Dropout, 1) };
    on_each_device(|| {
        let x = fresh((2, 32), 1);
        for (key, fits) in [((1u64 << 46) - 1, true), (1 << 46, false)] {
            let keys = [7, key];
            let segments = Segments {
                heads: 4,
                cu_seqlens: (&[0, 2]).into(),
                token_keys: (&keys).into(),
                reach: Reach::ALL,
                dropout: Some(&dropout),
            };
            if Gpu::of(&x).unwrap().is_some() {
                let outcome = attention::forward(&x, &x, &x, &segments);
                assert_eq!(outcome.is_ok(), fits, "{key}");
                assert!(fits || outcome.unwrap_err().to_string().contains("the dropout key 70368744177664"));
            }
        }
    });
}

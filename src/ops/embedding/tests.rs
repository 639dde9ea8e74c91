//! The sum of embeddings compared with its reference, padding rows, and invalid ids.

use super::*;
use crate::testing::{
    DTYPES, assert_close, assert_reference_is_differentiable, assert_same_for_any_thread_count, bits, device,
    fresh, fresh_ids, fresh_in, on_each_device, reference_gradients, within,
};
use crate::upload::{Numbers, Plans, upload};

fn tables(tensors: &[Tensor]) -> Tables<'_> {
    Tables { word_vd: &tensors[0], position_pd: tensors.get(1), type_nd: tensors.get(2) }
}

/// The rows of `table` with the row `padding` set to zero.
fn blank(table: &Tensor, padding: Option<u32>) -> Tensor {
    let (rows, _) = table.dims2().unwrap();
    let keep: Vec<f64> = (0..rows as u32).map(|row| f64::from(u8::from(Some(row) != padding))).collect();
    table.broadcast_mul(&Tensor::from_vec(keep, (rows, 1), &candle_core::Device::Cpu).unwrap()).unwrap()
}

#[test]
fn forward_and_backward_agree_with_the_reference() {
    on_each_device(|| {
        // For the GPU: ids with one and with several pieces, whose last piece is full or not.
        let sizes = [(1, 24, 1), (70, 96, 2), (3000, 67, 2), (5, 24, 12), (1300, 24, 1), (256, 1040, 1)];
        let paddings = [None, Some(1), Some(0), Some(3), Some(0), None];
        for (dtype, ((tokens, hidden, types), padding)) in DTYPES
            .into_iter()
            .flat_map(|dtype| sizes.into_iter().zip(paddings).map(move |case| (dtype, case)))
        {
            let vocabulary = 50;
            let positions = 20;
            let values =
                [fresh((vocabulary, hidden), 1), fresh((positions, hidden), 2), fresh((types, hidden), 3)];
            let dy = fresh_in((tokens, hidden), 4, dtype);
            let ids = [
                fresh_ids(tokens, vocabulary as u64, 5),
                fresh_ids(tokens, positions as u64, 6),
                fresh_ids(tokens, types as u64, 7),
            ];
            let ids =
                Ids { word: (&ids[0]).into(), position: (&ids[1]).into(), token_type: (&ids[2]).into() };
            let (want, gradients) =
                reference_gradients(|i| reference::forward(ids, &tables(i)), &values.each_ref(), &dy);
            let y = forward(ids, &tables(&values), dtype).unwrap();
            assert_eq!(y.dtype(), dtype);
            assert_close("y", &y, &want, within(dtype, 1e-6, 1.0));

            let sums = values.each_ref().map(|t| t.affine(0.5, 1.0).unwrap());
            let before = sums.each_ref().map(|t| t.copy().unwrap());
            backward(&dy, ids, &tables(&sums), Padding { word: padding, position: padding }).unwrap();
            for (table, padding) in [padding, padding, None].into_iter().enumerate() {
                let added = (&sums[table] - &before[table]).unwrap();
                assert_close(&format!("table {table}"), &added, &blank(&gradients[table], padding), 1e-5);
            }
        }
    });
}

/// Only a word table, as in models with rotary embedding, and a word and a position table. The ids of an
/// absent table are not read.
#[test]
fn tables_may_be_absent() {
    on_each_device(|| {
        for (dtype, (count, hidden)) in
            DTYPES.into_iter().flat_map(|dtype| [(1, 96), (2, 67)].map(|case| (dtype, case)))
        {
            let values = [fresh((50, hidden), 1), fresh((20, hidden), 2)];
            let words = fresh_ids(70, 50, 3);
            let places = fresh_ids(70, 20, 4);
            let none = vec![u32::MAX; 70];
            let position = if count == 2 { &places } else { &none };
            let ids = Ids { word: (&words).into(), position: position.into(), token_type: (&none).into() };
            let dy = fresh_in((70, hidden), 5, dtype);
            let inputs: Vec<&Tensor> = values[..count].iter().collect();
            let (want, gradients) =
                reference_gradients(|i| reference::forward(ids, &tables(i)), &inputs, &dy);
            let y = forward(ids, &tables(&values[..count]), dtype).unwrap();
            assert_close("y", &y, &want, within(dtype, 1e-6, 1.0));
            let sums = values.each_ref().map(|t| t.zeros_like().unwrap());
            backward(&dy, ids, &tables(&sums[..count]), Padding::default()).unwrap();
            for (sum, want) in sums.iter().zip(&gradients) {
                assert_close("table", sum, want, 1e-5);
            }
        }
    });
}

#[test]
fn no_tokens_add_nothing() {
    on_each_device(|| {
        let none = Ids { word: (&[]).into(), position: (&[]).into(), token_type: (&[]).into() };
        let sums = [fresh((4, 8), 1), fresh((3, 8), 2), fresh((1, 8), 3)];
        let before = sums.each_ref().map(bits);
        let y = forward(none, &tables(&sums), DType::BF16).unwrap();
        backward(&y, none, &tables(&sums), Padding::default()).unwrap();
        assert_eq!((y.dims(), sums.each_ref().map(bits)), ([0, 8].as_slice(), before));
    });
}

#[test]
fn the_reference_is_differentiable() {
    let ids =
        Ids { word: (&[3, 0, 3]).into(), position: (&[2, 3, 4]).into(), token_type: (&[0, 0, 1]).into() };
    assert_reference_is_differentiable(
        |i| reference::forward(ids, &tables(i)),
        &[&fresh((4, 5), 1), &fresh((6, 5), 2), &fresh((2, 5), 3)],
        &fresh((3, 5), 4),
    );
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    let tokens = 3000;
    let hidden = 96;
    let ids = fresh_ids(tokens, 40, 2);
    let types = fresh_ids(tokens, 2, 3);
    let ids = Ids { word: (&ids).into(), position: (&ids).into(), token_type: (&types).into() };
    for dtype in DTYPES {
        let dy = fresh_in((tokens, hidden), 1, dtype);
        assert_same_for_any_thread_count(&format!("{dtype:?}"), || {
            let sums = [fresh((40, hidden), 4), fresh((40, hidden), 5), fresh((2, hidden), 6)];
            let y = forward(ids, &tables(&sums), dtype).unwrap();
            backward(&dy, ids, &tables(&sums), Padding::default()).unwrap();
            (bits(&y), sums.map(|t| bits(&t)))
        });
    }
}

/// The plans of a batch, which are made in advance, leave out padding rows.
#[test]
fn uploaded_plans_do_not_change_the_result() {
    on_each_device(|| {
        let dy = fresh_in((500, 40), 1, DType::BF16);
        let Some(gpu) = Gpu::of(&dy).unwrap() else { return };
        let word = fresh_ids(500, 30, 2);
        let position = fresh_ids(500, 20, 3);
        let types = vec![0; 500];
        let arrays = [(&word, Some(4)), (&position, Some(2)), (&types, None)];
        let arrays = arrays.map(|(rows, skip)| Numbers::Scattered { rows, skip });
        let [w, p, t] = upload(&gpu, arrays, &Plans::of(arrays)).unwrap();
        let with_plans = Ids {
            word: Indices::uploaded(&word, &w).into(),
            position: Indices::uploaded(&position, &p),
            token_type: Indices::uploaded(&types, &t),
        };
        let plain = Ids { word: (&word).into(), position: (&position).into(), token_type: (&types).into() };
        let [with_plans, plain] = [with_plans, plain].map(|ids| {
            let sums = [fresh((30, 40), 4), fresh((20, 40), 5), fresh((1, 40), 6)];
            let y = forward(ids, &tables(&sums), DType::F16).unwrap();
            backward(&dy, ids, &tables(&sums), Padding { word: Some(4), position: Some(2) }).unwrap();
            (bits(&y), sums.map(|t| bits(&t)))
        });
        assert_eq!(with_plans, plain);
    });
}

#[test]
fn invalid_and_missing_ids_are_errors() {
    let values = [fresh((4, 5), 1), fresh((3, 5), 2), fresh((1, 5), 3)];
    for (word, position, token_type, message) in [
        (&[3, 4][..], &[0, 1][..], &[0, 0][..], "token id 4 (number 1 of 2) is not below 4"),
        (&[0], &[3], &[0], "position id 3"),
        (&[0], &[0], &[1], "token type id 1"),
        (&[0, 1], &[0], &[0, 0], "position ids has 1 values, it must have 2"),
    ] {
        let ids = Ids { word: word.into(), position: position.into(), token_type: token_type.into() };
        let error = forward(ids, &tables(&values), DType::F32).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
    let none = Ids { word: (&[]).into(), position: (&[]).into(), token_type: (&[]).into() };
    assert_eq!(forward(none, &tables(&values), DType::BF16).unwrap().dims(), [0, 5]);
    assert!(
        forward(none, &tables(&values), DType::U32)
            .unwrap_err()
            .to_string()
            .contains("embedding: no implementation for U32")
    );
}

/// Offsets have 64 bits: the last rows of the word table come after 2^31 values. Only these rows are ever
/// touched.
#[test]
fn rows_after_two_billion_values_are_found_and_added_to() {
    on_each_device(|| {
        let hidden = 64;
        let rows = (1 << 31) / 64 + 5;
        let word_vd = Tensor::zeros((rows, hidden), DType::F32, &device()).unwrap();
        let position_pd = fresh((2, hidden), 1);
        let type_nd = fresh((1, hidden), 2);
        let tables = Tables { word_vd: &word_vd, position_pd: Some(&position_pd), type_nd: Some(&type_nd) };
        let word = [rows as u32 - 1];
        let ids = Ids { word: (&word).into(), position: (&[1]).into(), token_type: (&[0]).into() };
        let last = fresh((1, hidden), 3);
        word_vd.narrow(0, rows - 1, 1).unwrap().slice_set(&last, 0, 0).unwrap();
        let y = forward(ids, &tables, DType::F32).unwrap();
        let want = (&last + &position_pd.narrow(0, 1, 1).unwrap()).unwrap().add(&type_nd).unwrap();
        assert_close("y", &y, &want, 1e-6);
        let gradients = Tables {
            position_pd: Some(&position_pd.zeros_like().unwrap()),
            type_nd: Some(&type_nd.zeros_like().unwrap()),
            ..tables
        };
        backward(&last, ids, &gradients, Padding::default()).unwrap();
        assert_close("gradient", &word_vd.narrow(0, rows - 1, 1).unwrap(), &(&last * 2.0).unwrap(), 0.0);
    });
}

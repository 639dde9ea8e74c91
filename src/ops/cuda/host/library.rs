//! What the stand-in for cuBLASLt names for a product: one algorithm, or in a test several with the times
//! that they would take.

use std::cell::RefCell;
use std::collections::HashMap;

use super::super::candidates::fastest;
use super::super::described::Description;
use super::super::described::MOST_ALIGNMENT;

#[derive(Debug)]
struct Library {
    /// Of each candidate of every product; `None` fails.
    seconds: Vec<Option<f64>>,
    chosen: HashMap<Description, usize>,
}

thread_local! {
    static LIBRARY: RefCell<Option<Library>> = const { RefCell::new(None) };
}

/// Runs `f` with a library that names several candidates for every product, the n-th of which takes
/// `seconds[n]`, or fails; and in how many products it had to choose.
pub fn with_candidates<R>(seconds: &[Option<f64>], f: impl FnOnce() -> R) -> (R, usize) {
    LIBRARY.set(Some(Library { seconds: seconds.to_vec(), chosen: HashMap::new() }));
    let outcome = f();
    (outcome, LIBRARY.take().map_or(0, |library| library.chosen.len()))
}

/// The algorithm that a product is done by: chosen when it is first asked for.
pub(super) fn algorithm(product: &Description) -> usize {
    LIBRARY.with_borrow_mut(|library| {
        let Some(Library { seconds, chosen }) = library else { return 0 };
        let choose = || fastest(seconds.len(), |candidate| seconds[candidate]).unwrap_or(0);
        // A GPU's memory begins at multiples of 256 bytes. The host's begins where its allocator has room, so
        // that the same product would be another one the next time.
        let product = Description { alignments: [MOST_ALIGNMENT; 4], ..*product };
        *chosen.entry(product).or_insert_with(choose)
    })
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::cuda::on_host;
    use crate::linear;
    use crate::testing::bits;
    use crate::testing::fresh;

    /// Products of every kind of a linear map, with candidates that take these seconds.
    fn products(seconds: &[Option<f64>]) -> Vec<Vec<u32>> {
        let (x, weight, bias, dy) =
            (fresh((50, 70), 1), fresh((24, 70), 2), fresh(24, 3), fresh((50, 24), 4));
        let dweight = fresh((24, 70), 5).to_device(&Device::Cpu).unwrap();
        let pass = || {
            let y = linear::forward(&x, &weight, Some(&bias)).unwrap();
            let dx = linear::backward_input(&dy, &weight).unwrap();
            linear::backward_parameters(&dy, &x, &dweight, None).unwrap();
            [y, dx].map(|t| bits(&t))
        };
        // A second pass finds what the first one has chosen, wherever its results lie.
        let apart = |bytes: usize| (pass(), Vec::<u8>::with_capacity(bytes));
        let (passes, products) = with_candidates(seconds, || on_host(|| [0, 16, 32, 64, 16].map(apart)));
        let [(first, _), others @ ..] = passes;
        assert_eq!(products, 3);
        assert!(others.iter().all(|(other, _)| *other == first));
        first.into_iter().chain([bits(&dweight)]).collect()
    }

    /// Algorithms add up in different orders: the bits say which one was taken.
    #[test]
    fn the_fastest_candidate_does_the_product() {
        let [first, second] = [&[Some(1.0)][..], &[Some(2.0), Some(1.0)]].map(products);
        for (one, other) in first.iter().zip(&second) {
            assert_ne!(one, other);
        }
        assert_eq!(products(&[Some(3.0), Some(1.0), Some(2.0)]), second);
        assert_eq!(products(&[Some(1.0), Some(3.0), Some(1.0)]), first);
        assert_eq!(products(&[None, Some(3.0), None]), second);
        // The heuristic's own choice where none can be timed.
        assert_eq!(products(&[None, None]), first);
    }
}

//! Algorithms that the CPU's replacement of cuBLASLt offers: one for every product, or in a test several with
//! prescribed run times.

use std::cell::RefCell;
use std::collections::HashMap;

use super::super::candidates::fastest;
use super::super::described::{Description, MOST_ALIGNMENT};

#[derive(Debug)]
struct Library {
    /// Run time of each candidate, the same for every product; a candidate with `None` fails.
    seconds: Vec<Option<f64>>,
    chosen: HashMap<Description, usize>,
}

thread_local! {
    static LIBRARY: RefCell<Option<Library>> = const { RefCell::new(None) };
}

/// Runs `f` with a library that proposes several candidates for every product: the n-th takes `seconds[n]`,
/// or fails if that is `None`. Returns the result of `f` and the number of products for which the library had
/// to choose.
pub fn with_candidates<R>(seconds: &[Option<f64>], f: impl FnOnce() -> R) -> (R, usize) {
    LIBRARY.set(Some(Library { seconds: seconds.to_vec(), chosen: HashMap::new() }));
    let outcome = f();
    (outcome, LIBRARY.take().map_or(0, |library| library.chosen.len()))
}

/// Returns the algorithm that computes a product; it is chosen when the product is first requested.
pub(super) fn algorithm(product: &Description) -> usize {
    LIBRARY.with_borrow_mut(|library| {
        let Some(Library { seconds, chosen }) = library else { return 0 };
        let choose = || fastest(seconds.len(), |candidate| seconds[candidate]).unwrap_or(0);
        // GPU allocations begin at multiples of 256 bytes. Host allocations begin where the allocator has
        // room, so without this the same product could have a different description the next time.
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
    use crate::testing::{bits, fresh};

    /// Bits of the results of all products of a linear map, with candidates that take these times.
    fn products(seconds: &[Option<f64>]) -> Vec<Vec<u32>> {
        let x = fresh((50, 70), 1);
        let weight = fresh((24, 70), 2);
        let bias = fresh(24, 3);
        let dy = fresh((50, 24), 4);
        let dweight = fresh((24, 70), 5).to_device(&Device::Cpu).unwrap();
        let pass = || {
            let y = linear::forward(&x, &weight, Some(&bias)).unwrap();
            let dx = linear::backward_input(&dy, &weight).unwrap();
            linear::backward_parameters(&dy, &x, &dweight, None).unwrap();
            [y, dx].map(|t| bits(&t))
        };
        // Later passes use the choices of the first one, at whatever addresses their results are stored.
        let apart = |bytes: usize| (pass(), Vec::<u8>::with_capacity(bytes));
        let (passes, products) = with_candidates(seconds, || on_host(|| [0, 16, 32, 64, 16].map(apart)));
        let [(first, _), others @ ..] = passes;
        assert_eq!(products, 3);
        assert!(others.iter().all(|(other, _)| *other == first));
        first.into_iter().chain([bits(&dweight)]).collect()
    }

    /// Algorithms sum in different orders, so the bits show which one was used.
    #[test]
    fn the_fastest_candidate_does_the_product() {
        let [first, second] = [&[Some(1.0)][..], &[Some(2.0), Some(1.0)]].map(products);
        for (one, other) in first.iter().zip(&second) {
            assert_ne!(one, other);
        }
        assert_eq!(products(&[Some(3.0), Some(1.0), Some(2.0)]), second);
        assert_eq!(products(&[Some(1.0), Some(3.0), Some(1.0)]), first);
        assert_eq!(products(&[None, Some(3.0), None]), second);
        // If no candidate can be timed, the heuristic's own choice is used.
        assert_eq!(products(&[None, None]), first);
    }
}

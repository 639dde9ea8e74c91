//! Algorithms that the CPU's replacement of cuBLASLt offers: one for every product, or in a test several with
//! prescribed run times.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::super::Address;
use super::super::algorithms::{Algorithm, Algorithms};
use super::super::candidates::fastest;
use super::super::choices::{Choice, Choices};
use super::super::described::{Description, MOST_ALIGNMENT};
use super::super::gemm::Gemm;

#[derive(Debug)]
struct Library {
    /// Run time of each candidate, the same for every product; a candidate with `None` fails.
    seconds: Vec<Option<f64>>,
    choices: Choices,
    /// Number of products for which a candidate was chosen by its time.
    timed: usize,
}

thread_local! {
    static LIBRARY: RefCell<Option<Library>> = const { RefCell::new(None) };
}

/// Runs `f` with a library that proposes several candidates for every product: the n-th takes `seconds[n]`,
/// or fails if that is `None`. Returns the result of `f` and the number of products for which the library had
/// to choose.
pub fn with_candidates<R>(seconds: &[Option<f64>], f: impl FnOnce() -> R) -> (R, usize) {
    LIBRARY.set(Some(Library { seconds: seconds.to_vec(), choices: Choices::default(), timed: 0 }));
    let outcome = f();
    (outcome, LIBRARY.take().map_or(0, |library| library.timed))
}

/// Returns the number of the algorithm that computes a product; it is chosen when the first product of its
/// bucket is requested.
pub(super) fn algorithm(gemm: &Gemm, sums: Option<Address>) -> usize {
    LIBRARY.with_borrow_mut(|library| {
        let Some(Library { seconds, choices, timed }) = library else { return 0 };
        // GPU allocations begin at multiples of 256 bytes. Host allocations begin where the allocator has
        // room, so without this the same product could have a different description the next time.
        let bucket = Description { alignments: [MOST_ALIGNMENT; 4], ..Description::bucket_of(gemm, sums) };
        let key = bucket.key(false);
        if let Some(Choice::Algorithm(algorithm)) = choices.get(&key) {
            return algorithm.0[0] as usize;
        }
        let chosen = fastest(seconds.len(), |candidate| seconds[candidate]).unwrap_or(0);
        *timed += 1;
        choices.insert(key, Some(Algorithm([chosen as u64, 0, 0, 0, 0, 0, 0, 0])));
        chosen
    })
}

/// The algorithms chosen so far, by the library of [`with_candidates`]; none outside of it.
pub(super) fn algorithms() -> Algorithms {
    let chosen = LIBRARY.with_borrow(|library| library.as_ref().map(|library| library.choices.exported()));
    Algorithms {
        device: "the host".to_string(),
        library: "of the host".to_string(),
        chosen: chosen.unwrap_or_default(),
    }
}

pub(super) fn use_algorithms(chosen: &BTreeMap<String, Algorithm>) {
    LIBRARY.with_borrow_mut(|library| {
        if let Some(library) = library {
            library.choices.import(chosen);
        }
    });
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::cuda::{Gpu, on_host};
    use crate::linear;
    use crate::testing::{bits, fresh};

    /// Bits of the results of all products of a linear map of this number of rows.
    fn pass(rows: usize) -> Vec<Vec<u32>> {
        let x = fresh((rows, 70), 1);
        let weight = fresh((24, 70), 2);
        let bias = fresh(24, 3);
        let dy = fresh((rows, 24), 4);
        let dweight = fresh((24, 70), 5).to_device(&Device::Cpu).unwrap();
        let y = linear::forward(&x, &weight, Some(&bias)).unwrap();
        let dx = linear::backward_input(&dy, &weight).unwrap();
        linear::backward_parameters(&dy, &x, &dweight, None).unwrap();
        [y, dx, dweight].map(|t| bits(&t)).to_vec()
    }

    /// Bits of the results of all products of a linear map, with candidates that take these times.
    fn products(seconds: &[Option<f64>]) -> Vec<Vec<u32>> {
        // Later passes use the choices of the first one, at whatever addresses their results are stored.
        let (passes, products) = with_candidates(seconds, || {
            on_host(|| [0, 16, 32, 64, 16].map(|bytes| (pass(50), Vec::<u8>::with_capacity(bytes))))
        });
        let [(first, _), others @ ..] = passes;
        assert_eq!(products, 3);
        assert!(others.iter().all(|(other, _)| *other == first));
        first
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

    /// The algorithms of a process whose library measures these times, the bits of its passes with these
    /// numbers of rows, and the number of products that it timed. It begins with the choices of `earlier`.
    fn process(
        seconds: [f64; 2],
        rows: &[usize],
        earlier: Option<&Algorithms>,
    ) -> (Algorithms, Vec<Vec<Vec<u32>>>, usize) {
        let ((algorithms, passes), timed) = with_candidates(&seconds.map(Some), || {
            on_host(|| {
                let gpu = Gpu::of_device(&Device::Cpu).unwrap().unwrap();
                if let Some(earlier) = earlier {
                    gpu.use_algorithms(&earlier.chosen);
                }
                let passes = rows.iter().map(|&rows| pass(rows)).collect();
                (gpu.algorithms().unwrap(), passes)
            })
        });
        (algorithms, passes, timed)
    }

    /// In a later process the other candidate is faster, as may happen when both are about as fast.
    #[test]
    fn a_process_with_the_choices_of_an_earlier_one_times_nothing_and_computes_the_same_bits() {
        let rows = [50, 128, 1, 129];
        let (earlier, wanted, timed) = process([2.0, 1.0], &rows, None);
        assert_eq!(timed, 6, "three products of up to 128 rows, and three of more");
        assert_eq!(earlier.chosen.len(), 6);
        let (algorithms, passes, timed) = process([1.0, 2.0], &rows, Some(&earlier));
        assert_eq!((&algorithms, timed), (&earlier, 0));
        assert!(passes == wanted);
        // Without the choices the bits are others.
        let (_, passes, timed) = process([1.0, 2.0], &rows, None);
        assert_eq!(timed, 6);
        assert!(passes != wanted);
        // More rows than there were are a bucket of their own.
        let (algorithms, _, timed) = process([1.0, 2.0], &[300], Some(&earlier));
        assert_eq!((algorithms.chosen.len(), timed), (9, 3));
    }
}

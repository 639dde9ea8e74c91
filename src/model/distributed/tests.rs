//! Tests of a world of several processes, which are simulated by threads.

use std::time::Duration;

use candle_core::{DType, Device};

use super::threads::in_each;
use super::*;
use base::error::class_of;
use base::rng::{Purpose, Stream};

const TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn one_of_many_is_refused_and_one_alone_is_not() {
    assert_eq!(World::detect(|_| None).unwrap().size, 1);
    assert_eq!(World::detect(only("SLURM_NTASKS", "1")).unwrap().size, 1);
    let error = World::detect(only("OMPI_COMM_WORLD_SIZE", "4")).unwrap_err();
    assert!(
        error.to_string().contains("`OMPI_COMM_WORLD_SIZE` says that this is one of 4 processes"),
        "{error}"
    );
    assert_eq!(error.class.exit_code(), 2);
}

/// An environment with this one variable.
fn only(name: &'static str, value: &'static str) -> impl Fn(&str) -> Option<String> {
    move |asked| (asked == name).then(|| value.to_string())
}

/// `len` normally distributed values.
fn normals(seed: u64, index: u64, len: u64) -> Vec<f32> {
    let stream = Stream::new(seed, Purpose::Test, index);
    (0..len).map(|i| stream.normal(i) as f32).collect()
}

/// The sum of the leaves `from..to`, added up in pairs.
fn tree(from: u64, to: u64, len: u64) -> Vec<f32> {
    if to - from == 1 {
        let stream = Stream::new(5, Purpose::Test, from);
        let period: Vec<f32> = (0..4096).map(|i| stream.normal(i) as f32).collect();
        return period.into_iter().cycle().take(len as usize).collect();
    }
    let middle = u64::midpoint(from, to);
    let mut sum = tree(from, middle, len);
    sum.iter_mut().zip(tree(middle, to, len)).for_each(|(a, b)| *a += b);
    sum
}

/// Eight vectors give the same sum whether one process adds them up over its own tree or several processes
/// do.
#[test]
fn sums_have_the_same_bits_for_any_number_of_processes() {
    let len = BUCKET_VALUES as u64 + 1003;
    let expected = tree(0, 8, len);
    for size in [2, 4, 8] {
        let worlds = threads::worlds(size, TIMEOUT);
        let sums = in_each(&worlds, |world| {
            let leaves = 8 / size as u64;
            let first = world.rank as u64 * leaves;
            let mut own = tree(first, first + leaves, len);
            world.sum_values(&mut own).unwrap();
            own
        });
        assert!(sums.iter().all(|sum| *sum == expected), "{size} processes");
    }
}

/// The parts are not as long as a bucket, and one of them is empty; only rank 0 wants the whole.
#[test]
fn parts_are_joined_in_their_order() {
    let len = 2 * BUCKET_VALUES + 77;
    let all: Vec<f32> = (0..len).map(|i| (i % 65_521) as f32).collect();
    let parts = [0..BUCKET_VALUES + 5, BUCKET_VALUES + 5..BUCKET_VALUES + 5, BUCKET_VALUES + 5..len];
    let joined = in_each(&threads::worlds(3, TIMEOUT), |world| {
        let mut whole = vec![0.0; if world.is_first() { len } else { 0 }];
        let wanted = world.is_first().then_some(whole.as_mut_slice());
        world.join_parts(&all[parts[world.rank].clone()], &parts, wanted).unwrap();
        whole
    });
    assert!(joined[0] == all && joined[1].is_empty());
}

/// bf16 values or the library's own order of summation give nearly the same sums, and the same ones in all
/// processes.
#[test]
fn other_ways_to_travel_lose_little_and_the_same_everywhere() {
    let len = 1003;
    let values: Vec<Vec<f32>> = (0..4).map(|rank| normals(6, rank, len)).collect();
    let exact: Vec<f64> =
        (0..len as usize).map(|i| values.iter().map(|own| f64::from(own[i])).sum()).collect();
    let worlds = threads::worlds(4, TIMEOUT);
    for (wire, sum, bits) in [(Wire::Bf16, SumOrder::Tree, 8), (Wire::F32, SumOrder::Fast, 22)] {
        let sums = in_each(&worlds, |world| {
            let mut own = values[world.rank].clone();
            World { ways: Ways { wire, sum, ..Ways::default() }, ..world }.sum_values(&mut own).unwrap();
            own
        });
        assert!(sums.iter().all(|other| *other == sums[0]));
        // Each of the four values and their sum are rounded, and values are below five.
        let most = 5.0 * 20.0 * 0.5_f64.powi(bits + 1);
        let wrong = sums[0].iter().zip(&exact).map(|(sum, exact)| (f64::from(*sum) - exact).abs());
        let worst = wrong.fold(0.0, f64::max);
        assert!(worst < most && worst > 0.0, "{wire:?} {sum:?}: {worst} of {most}");
    }
}

/// The sum of bf16 values on GPUs has the same bits as on CPUs, also if the parts differ in length and if
/// there are fewer values than processes.
#[test]
fn bf16_is_added_up_on_gpus_as_on_cpus() {
    let config = DistributedConfig { wire: Wire::Bf16, ..DistributedConfig::default() };
    for (size, len) in [(2, 1003), (3, 1003), (5, 77), (5, 3)] {
        let on_cpus = in_each(&threads::worlds_of(size, TIMEOUT, &config), |world| {
            let mut own = bf16_test_values(world.rank, len);
            world.sum_values(&mut own).unwrap();
            own
        });
        let on_gpus = in_each(&threads::worlds_on_gpus(size, TIMEOUT, &config), |world| {
            // The values are a slice of a longer tensor, as buckets are.
            let around = Tensor::zeros(len as usize + 20, DType::F32, &Device::Cpu).unwrap();
            let values = around.narrow(0, 10, len as usize).unwrap();
            values
                .slice_set(&Tensor::new(bf16_test_values(world.rank, len), &Device::Cpu).unwrap(), 0, 0)
                .unwrap();
            world.sum_in_place(&values).unwrap();
            assert_eq!(around.narrow(0, 0, 10).unwrap().to_vec1::<f32>().unwrap(), [0.0; 10]);
            values.to_vec1::<f32>().unwrap()
        });
        assert!(on_gpus == on_cpus, "{len} values of {size} processes");
    }
}

/// The values of a process. With fewer values than processes, GPUs add up f32: then the values are small
/// integers, whose sums are exact in any order.
fn bf16_test_values(rank: usize, len: u64) -> Vec<f32> {
    if len < 5 { (0..len).map(|i| i as f32).collect() } else { normals(8, rank as u64, len) }
}

/// Sums that are sent early have the same bits, also if a process reports no final gradients in a step, or
/// reports them in another order.
#[test]
fn sums_that_travel_early_are_the_same() {
    let worlds = threads::worlds(4, TIMEOUT);
    let plain = in_each(&worlds, |world| {
        let mut sums = Vec::new();
        for step in 0..4 {
            let mut own = normals(7, 10 * step + world.rank as u64, EARLY_LEN);
            world.sum_values(&mut own).unwrap();
            sums.push(own);
        }
        sums
    });
    let on_gpus = threads::worlds_on_gpus(4, TIMEOUT, &DistributedConfig::default());
    assert!(in_each(&worlds, early_sums) == plain);
    // The simulated GPUs add up the four vectors one after the other, not in pairs.
    for (found, plain) in in_each(&on_gpus, early_sums).iter().zip(&plain) {
        for (a, b) in found.iter().flatten().zip(plain.iter().flatten()) {
            assert!((a - b).abs() <= 1e-6 * (a.abs() + b.abs()).max(1.0));
        }
    }
}

/// Number of values of which ranges are sent early.
const EARLY_LEN: u64 = 1000;

/// The sums of four steps whose gradients become final in three ranges and a rest.
fn early_sums(world: World) -> Vec<Vec<f32>> {
    let ranges = [800..1000, 300..800, 10..300];
    let sums = world.sums_meanwhile().unwrap();
    let mut found = Vec::new();
    for step in 0..4 {
        let own = Tensor::new(normals(7, 10 * step + world.rank as u64, EARLY_LEN), &Device::Cpu).unwrap();
        let mut finished = ranges.to_vec();
        match (world.rank, step) {
            (1, 2) => finished.clear(),
            (2, 3) => finished.reverse(),
            _ => {}
        }
        for range in finished {
            sums.add(range.clone(), &own.narrow(0, range.start, range.len()).unwrap()).unwrap();
        }
        sums.finish(&own).unwrap();
        found.push(own.to_vec1::<f32>().unwrap());
    }
    let zeros = Tensor::zeros(200, DType::F32, &Device::Cpu).unwrap();
    let again = [0, 1].map(|_| sums.add(ranges[0].clone(), &zeros));
    assert!(again[0].is_ok() && again[1].as_ref().unwrap_err().to_string().contains("twice"));
    found
}

#[test]
fn a_process_with_another_model_is_named() {
    let worlds = threads::worlds(4, TIMEOUT);
    let found = in_each(&worlds, |world| {
        world.compare_replicas("same", 20).unwrap();
        let hash = if world.rank == 2 { "flipped" } else { "same" };
        world.compare_replicas(hash, 40).unwrap_err().to_string()
    });
    assert!(
        found.iter().all(|e| e.starts_with("rank 2 of 4 has other parameters after step 40\n")),
        "{found:?}"
    );
    let world = &worlds[0];
    assert!(world.is_to_compare(1000, false) && world.is_to_compare(7, true));
    assert!(!world.is_to_compare(7, false) && !World::ALONE.is_to_compare(1000, true));
}

#[test]
fn a_timeout_is_reported_with_rank_and_step() {
    let worlds = threads::worlds(2, Duration::from_millis(50));
    worlds[1].at_step(7);
    let error = worlds[1].gather(&1).unwrap_err();
    assert!(
        error.to_string().starts_with("rank 1 of 2 has waited 0.05 s for the others in step 7"),
        "{error}"
    );
    assert_eq!(class_of(&error).exit_code(), 75);
    // The other process comes too late.
    assert!(worlds[0].gather(&0).is_err(), "it waits for what the first one did not come to say");
    assert!(worlds[1].gather(&2).is_err(), "nothing more is exchanged");
}

//! Threads as processes.

use std::time::Duration;

use candle_core::DType;
use candle_core::Device;

use super::threads::in_each;
use super::*;
use crate::error::class_of;
use crate::rng::Purpose;
use crate::rng::Stream;

const TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn one_of_many_is_refused_and_one_alone_is_not() {
    let with = |name: &'static str, value: &'static str| {
        move |asked: &str| (asked == name).then(|| value.to_string())
    };
    assert_eq!(World::detect(|_| None).unwrap().size, 1);
    assert_eq!(World::detect(with("SLURM_NTASKS", "1")).unwrap().size, 1);
    let error = World::detect(with("OMPI_COMM_WORLD_SIZE", "4")).unwrap_err();
    assert!(
        error.to_string().contains("`OMPI_COMM_WORLD_SIZE` says that this is one of 4 processes"),
        "{error}"
    );
    assert_eq!(error.class.exit_code(), 2);
}

/// Leaves `from..to`, in pairs.
fn tree(
    from: u64,
    to: u64,
    leaf: &dyn Fn(u64) -> Vec<f32>,
    add: &dyn Fn(Vec<f32>, Vec<f32>) -> Vec<f32>,
) -> Vec<f32> {
    if to - from == 1 {
        return leaf(from);
    }
    let middle = u64::midpoint(from, to);
    add(tree(from, middle, leaf, add), tree(middle, to, leaf, add))
}

/// Eight vectors, added up where they are: by one process over a tree of its own, or by more of them.
#[test]
fn sums_have_the_same_bits_for_any_number_of_processes() {
    let len = BUCKET_VALUES + 1003;
    let leaf = |leaf: u64| {
        let stream = Stream::new(5, Purpose::Test, leaf);
        (0..len as u64).map(|i| stream.normal(i % 4096) as f32).collect::<Vec<f32>>()
    };
    let added = |mut a: Vec<f32>, b: Vec<f32>| {
        a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
        a
    };
    let expected = tree(0, 8, &leaf, &added);
    for size in [2, 4, 8] {
        let worlds = threads::worlds(size, TIMEOUT);
        let sums = in_each(&worlds, |world| {
            let leaves = 8 / size as u64;
            let first = world.rank as u64 * leaves;
            let mut own = tree(first, first + leaves, &leaf, &added);
            world.sum_values(&mut own).unwrap();
            own
        });
        assert!(sums.iter().all(|sum| *sum == expected), "{size} processes");
    }
}

/// Parts of other lengths than a bucket, one of them empty; only the first process wants the whole.
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

/// Half the bytes, or an order of the library's own: nearly the same sums, and the same in all processes.
#[test]
fn other_ways_to_travel_lose_little_and_the_same_everywhere() {
    let len = 1003;
    let own = |rank: usize| {
        let stream = Stream::new(6, Purpose::Test, rank as u64);
        (0..len).map(|i| stream.normal(i) as f32).collect::<Vec<f32>>()
    };
    let exact: Vec<f64> =
        (0..len as usize).map(|i| (0..4).map(|rank| f64::from(own(rank)[i])).sum()).collect();
    let worlds = threads::worlds(4, TIMEOUT);
    for (wire, sum, bits) in [(Wire::Bf16, SumOrder::Tree, 8), (Wire::F32, SumOrder::Fast, 22)] {
        let sums = in_each(&worlds, |world| {
            let mut own = own(world.rank);
            World { ways: Ways { wire, sum, ..Ways::default() }, ..world }.sum_values(&mut own).unwrap();
            own
        });
        assert!(sums.iter().all(|other| *other == sums[0]));
        // Each of four values and their sum are rounded, and values are below five.
        let most = 5.0 * 20.0 * 0.5_f64.powi(bits + 1);
        let wrong = sums[0].iter().zip(&exact).map(|(sum, exact)| (f64::from(*sum) - exact).abs());
        let worst = wrong.fold(0.0, f64::max);
        assert!(worst < most && worst > 0.0, "{wire:?} {sum:?}: {worst} of {most}");
    }
}

/// Between GPUs bf16 is added up as between CPUs, to the bit: in parts of unlike lengths, and where there is less than
/// a value for each.
#[test]
fn bf16_is_added_up_on_gpus_as_on_cpus() {
    let config = DistributedConfig { wire: Wire::Bf16, ..DistributedConfig::default() };
    for (size, len) in [(2, 1003), (3, 1003), (5, 77), (5, 3)] {
        let own = |world: World| {
            let stream = Stream::new(8, Purpose::Test, world.rank as u64);
            // Sums of these are exact in f32, whatever their order, where all of them travel.
            (0..len).map(|i| if len < 5 { i as f32 } else { stream.normal(i) as f32 }).collect::<Vec<f32>>()
        };
        let on_cpus = in_each(&threads::worlds_of(size, TIMEOUT, &config), |world| {
            let mut own = own(world);
            world.sum_values(&mut own).unwrap();
            own
        });
        let on_gpus = in_each(&threads::worlds_on_gpus(size, TIMEOUT, &config), |world| {
            // Inside a longer vector, as buckets are.
            let around = Tensor::zeros(len as usize + 20, DType::F32, &Device::Cpu).unwrap();
            let values = around.narrow(0, 10, len as usize).unwrap();
            values.slice_set(&Tensor::new(own(world), &Device::Cpu).unwrap(), 0, 0).unwrap();
            world.sum_in_place(&values).unwrap();
            assert_eq!(around.narrow(0, 0, 10).unwrap().to_vec1::<f32>().unwrap(), [0.0; 10]);
            values.to_vec1::<f32>().unwrap()
        });
        assert!(on_gpus == on_cpus, "{len} values of {size} processes");
    }
}

/// What travels early is summed to the same bits, also where a process has nothing to tell in a step, or tells
/// it in another order.
#[test]
fn sums_that_travel_early_are_the_same() {
    let len = 1000;
    let ranges = [800..1000, 300..800, 10..300];
    let own = |rank: usize, step: u64| {
        let stream = Stream::new(7, Purpose::Test, 10 * step + rank as u64);
        (0..len).map(|i| stream.normal(i) as f32).collect::<Vec<f32>>()
    };
    let worlds = threads::worlds(4, TIMEOUT);
    let plain = in_each(&worlds, |world| {
        let sum = |step| {
            let mut own = own(world.rank, step);
            world.sum_values(&mut own).unwrap();
            own
        };
        (0..4).map(sum).collect::<Vec<_>>()
    });
    let on_gpus = threads::worlds_on_gpus(4, TIMEOUT, &DistributedConfig::default());
    let early = |world: World| {
        let sums = world.sums_meanwhile().unwrap();
        let sum = |step| {
            let own = Tensor::new(own(world.rank, step), &Device::Cpu).unwrap();
            let mut told = ranges.to_vec();
            match (world.rank, step) {
                (1, 2) => told.clear(),
                (2, 3) => told.reverse(),
                _ => {}
            }
            for range in told {
                sums.add(range.clone(), &own.narrow(0, range.start, range.len()).unwrap()).unwrap();
            }
            sums.finish(&own).unwrap();
            own.to_vec1::<f32>().unwrap()
        };
        let found: Vec<_> = (0..4).map(sum).collect();
        let zeros = Tensor::zeros(200, DType::F32, &Device::Cpu).unwrap();
        let again = [0, 1].map(|_| sums.add(ranges[0].clone(), &zeros));
        assert!(again[0].is_ok() && again[1].as_ref().unwrap_err().to_string().contains("twice"));
        found
    };
    assert!(in_each(&worlds, early) == plain);
    // Four are added up one after the other there.
    let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-6 * (a.abs() + b.abs()).max(1.0);
    for (found, plain) in in_each(&on_gpus, early).iter().zip(&plain) {
        assert!(found.iter().flatten().zip(plain.iter().flatten()).all(close));
    }
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
    let due = |step, is_saved| worlds[0].is_to_compare(step, is_saved);
    assert!(due(1000, false) && due(7, true) && !due(7, false) && !World::ALONE.is_to_compare(1000, true));
}

#[test]
fn processes_agree_and_are_told_apart() {
    let worlds = threads::worlds(3, TIMEOUT);
    let told = in_each(&worlds, |world| {
        let rank = world.rank;
        let sums = world.sum(vec![rank, 10]).unwrap();
        let agreed = world.agree(format!("of {rank}")).unwrap();
        let any = world.any((rank > 0).then_some(rank)).unwrap();
        let none = world.any(None::<usize>).unwrap();
        assert_eq!(world.agree(None::<usize>).unwrap(), None);
        assert_eq!(world.all_of(Some(rank)).unwrap(), Some(rank));
        assert_eq!(world.all_of((rank != 1).then_some(rank)).unwrap(), None);
        world.wait_for_all().unwrap();
        world.require_same(&[("the version", "1".to_string())]).unwrap();
        let hash = if rank == 0 { "a" } else { "b" };
        let error = world.require_same(&[("the version", "1".to_string()), ("the data", hash.to_string())]);
        (sums, agreed, any, none, error.unwrap_err())
    });
    for (sums, agreed, any, none, error) in told {
        assert_eq!((sums, agreed.as_str(), any, none), (vec![3, 30], "of 0", Some(1), None));
        assert!(
            error.to_string().starts_with("the data of ranks 1, 2 differs from that of rank 0"),
            "{error}"
        );
        assert_eq!(class_of(&error).exit_code(), 2);
    }
}

#[test]
fn what_never_comes_is_told_with_rank_and_step() {
    let worlds = threads::worlds(2, Duration::from_millis(50));
    worlds[1].at_step(7);
    let error = worlds[1].gather(&1).unwrap_err();
    assert!(
        error.to_string().starts_with("rank 1 of 2 has waited 0.05 s for the others in step 7"),
        "{error}"
    );
    assert_eq!(class_of(&error).exit_code(), 75);
    // The other one comes late.
    assert!(worlds[0].gather(&0).is_err(), "it waits for what the first one did not come to say");
    assert!(worlds[1].gather(&2).is_err(), "nothing more is exchanged");
}

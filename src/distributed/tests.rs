//! Threads as processes.

use std::time::Duration;

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
}

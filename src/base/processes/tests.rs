//! Tests of several processes, which are simulated by threads.

use super::testing::{in_each, threads};
use crate::error::class_of;

#[test]
fn processes_agree_and_differences_are_named() {
    let found = in_each(&threads(3), |processes| {
        let rank = processes.rank;
        let sums = processes.sum(vec![rank, 10]).unwrap();
        let agreed = processes.agree(format!("of {rank}")).unwrap();
        let any = processes.any((rank > 0).then_some(rank)).unwrap();
        let none = processes.any(None::<usize>).unwrap();
        assert_eq!(processes.agree(None::<usize>).unwrap(), None);
        assert_eq!(processes.all_of(Some(rank)).unwrap(), Some(rank));
        assert_eq!(processes.all_of((rank != 1).then_some(rank)).unwrap(), None);
        processes.wait_for_all().unwrap();
        processes.require_same(&[("the version", "1".to_string())]).unwrap();
        let hash = if rank == 0 { "a" } else { "b" };
        let error =
            processes.require_same(&[("the version", "1".to_string()), ("the data", hash.to_string())]);
        (sums, agreed, any, none, error.unwrap_err())
    });
    for (sums, agreed, any, none, error) in found {
        assert_eq!((sums, agreed.as_str(), any, none), (vec![3, 30], "of 0", Some(1), None));
        assert!(
            error.to_string().starts_with("the data of ranks 1, 2 differs from that of rank 0"),
            "{error}"
        );
        assert_eq!(class_of(&error).exit_code(), 2);
    }
}

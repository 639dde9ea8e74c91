//! Share of pairs whose correct sentence the model finds more likely: overall, by field of grammar and by
//! paradigm.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Judged, Pair};
use crate::tasks::trained::Scored;
use base::scores::wilson_interval;

/// Number of pairs, and of those that were judged correctly.
#[derive(Debug, Clone, Copy, Default)]
struct Share {
    right: u64,
    pairs: u64,
}

impl Share {
    fn add(&mut self, is_right: bool) {
        self.right += u64::from(is_right);
        self.pairs += 1;
    }

    fn accuracy(self) -> f64 {
        self.right as f64 / self.pairs as f64
    }

    fn line(self, name: &str) -> String {
        let (low, high) = wilson_interval(self.right, self.pairs);
        let [share, low, high] = [self.accuracy(), low, high].map(|share| 100.0 * share);
        format!("{name:50} {share:6.2} % ({low:5.1} to {high:5.1})  {:6} pairs", self.pairs)
    }

    fn json(self) -> Value {
        let (low, high) = wilson_interval(self.right, self.pairs);
        json!({"accuracy": self.accuracy(), "low": low, "high": high, "pairs": self.pairs})
    }
}

/// Makes the scores of `judged`, one for each of `pairs`. Intervals are Wilson's at 95 %.
pub fn report(pairs: &[Pair], judged: &[Judged]) -> Scored {
    let mut all = Share::default();
    let mut ties = 0;
    let (mut by_field, mut by_paradigm): (BTreeMap<&str, Share>, BTreeMap<&str, Share>) = Default::default();
    for (pair, judged) in pairs.iter().zip(judged) {
        let is_right = judged.is_right();
        all.add(is_right);
        ties += usize::from(judged.good.to_bits() == judged.bad.to_bits());
        for (shares, name) in [(&mut by_field, &pair.field), (&mut by_paradigm, &pair.paradigm)] {
            if let Some(name) = name {
                shares.entry(name).or_default().add(is_right);
            }
        }
    }
    let mut scored = Scored::default();
    for (title, shares) in [("field", &by_field), ("paradigm", &by_paradigm)] {
        let json = shares.iter().map(|(name, share)| (name.to_string(), share.json()));
        let json: serde_json::Map<String, Value> = json.collect();
        scored.json.insert(format!("eval_by_{title}"), json.into());
        scored.lines.extend(shares.iter().map(|(name, share)| share.line(name)));
    }
    scored.lines.push(all.line("overall"));
    if ties > 0 {
        scored.lines.push(format!("{ties} pairs are as likely one way as the other, and count as wrong"));
    }
    let (low, high) = wilson_interval(all.right, all.pairs);
    let numbers = [("accuracy", all.accuracy()), ("accuracy_low", low), ("accuracy_high", high)];
    scored.json.extend(numbers.map(|(name, value)| (format!("eval_{name}"), value.into())));
    scored.json.insert("eval_examples".into(), all.pairs.into());
    scored.json.insert("eval_ties".into(), ties.into());
    scored
}

//! The mixes of sources of a run: how often each comes over the steps, and what share of the tokens that is.

use crate::batches::Order;
use crate::config::PretrainConfig;
use crate::config::value_at;
use crate::shards::Manifest;

/// How often each source comes, from which step on.
#[derive(Debug, Clone, PartialEq)]
pub struct Mixes {
    /// What the sources are called, with their tokens where these are known.
    sources: Vec<(String, Option<u64>)>,
    /// Weights of the sources, each with the steps that are done when they begin to hold.
    weights: Vec<(u64, Vec<f64>)>,
}

impl Mixes {
    /// The mixes of a run; the shares of sources are known with the manifest of its shards only.
    pub fn new(config: &PretrainConfig, manifest: Option<&Manifest>) -> Self {
        let sources = &config.data.sources;
        let own = || sources.iter().map(|source| source.weight).collect();
        let weights = config.training.changes(|phase| phase.map_or_else(own, |phase| phase.weights(sources)));
        let tokens = |number: usize, manifest: &Manifest| -> u64 {
            let shards = manifest.train.shards.iter().filter(|shard| shard.source == number);
            shards.map(|shard| shard.tokens).sum()
        };
        let source = |number: usize| {
            let tokens = manifest.map(|manifest| tokens(number, manifest));
            let name = manifest.and_then(|manifest| manifest.sources.get(number).cloned());
            (name.unwrap_or_else(|| sources[number].display_name()), tokens)
        };
        Self { sources: (0..sources.len()).map(source).collect(), weights }
    }

    /// Whether there are several.
    pub fn change(&self) -> bool {
        self.weights.len() > 1
    }

    /// The order of the first mix, and those of later ones with the steps that are done when they begin.
    pub(super) fn orders(&self, seed: u64) -> (Order, Vec<(u64, Order)>) {
        let order = |weights: &[f64]| Order::Weighted { seed, weights: weights.into() };
        let mut orders = self.weights.iter().map(|(from, weights)| (*from, order(weights)));
        let (_, first) = orders.next().expect("the first one begins with the run");
        (first, orders.collect())
    }

    /// The share that each source has of the tokens of the step after `steps_done`, where that is known.
    pub fn shares_at(&self, steps_done: u64) -> Option<Vec<(String, f64)>> {
        let weights = value_at(&self.weights, steps_done);
        let weighted = |((name, tokens), weight): (&(String, Option<u64>), &f64)| {
            Some((name.clone(), (*tokens)? as f64 * weight))
        };
        let mut shares: Vec<(String, f64)> =
            self.sources.iter().zip(weights).map(weighted).collect::<Option<_>>()?;
        let sum: f64 = shares.iter().map(|(_, tokens)| tokens).sum();
        for (_, tokens) in &mut shares {
            *tokens /= sum;
        }
        Some(shares)
    }

    /// The mix of the step after `steps_done`, for people: shares of the tokens, else weights.
    pub fn text_at(&self, steps_done: u64) -> String {
        let parts: Vec<String> = if let Some(shares) = self.shares_at(steps_done) {
            shares.iter().map(|(name, share)| format!("{name} {:.0} %", 100.0 * share)).collect()
        } else {
            let weights = value_at(&self.weights, steps_done);
            self.sources.iter().zip(weights).map(|((name, _), weight)| format!("{name} x {weight}")).collect()
        };
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(phases: &str) -> PretrainConfig {
        serde_json::from_str(&format!(
            r#"{{"data": {{"sources": [{{"files": ["web.txt"]}}, {{"files": ["news.txt"], "weight": 3}}]}},
                "model": {{"roberta": {{}}}}, "training": {{"max_steps": 9, "phases": [{phases}]}}}}"#
        ))
        .unwrap()
    }

    #[test]
    fn weights_are_told_until_there_are_shards() {
        let plain = Mixes::new(&config(""), None);
        assert_eq!((plain.text_at(0), plain.change()), ("web x 1, news x 3".to_string(), false));
        let phases = r#"{"until_step": 4, "max_seq_length": 64, "sources": [{"name": "news", "weight": 0}]}"#;
        let mixes = Mixes::new(&config(phases), None);
        assert!(mixes.change());
        assert_eq!([mixes.text_at(3), mixes.text_at(4)], ["web x 1, news x 0", "web x 1, news x 3"]);
        let (first, later) = mixes.orders(1);
        let order = |weights: [f64; 2]| Order::Weighted { seed: 1, weights: weights.into() };
        assert_eq!((first, later), (order([1.0, 0.0]), vec![(4, order([1.0, 3.0]))]));
    }

    #[test]
    fn shares_are_those_of_tokens() {
        let mut mixes = Mixes::new(&config(""), None);
        assert_eq!(mixes.shares_at(0), None);
        mixes.sources = vec![("web".to_string(), Some(900)), ("news".to_string(), Some(100))];
        let shares = mixes.shares_at(0).unwrap();
        assert!((shares[0].1 - 0.75).abs() < 1e-12 && (shares[1].1 - 0.25).abs() < 1e-12, "{shares:?}");
        assert_eq!(mixes.text_at(0), "web 75 %, news 25 %");
    }
}

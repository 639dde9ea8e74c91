//! The mixes of sources of a run: the weight of each source over the steps, and its share of the tokens.

use config::{PretrainConfig, value_at};
use data::batches::Order;
use data::shards::Manifest;

/// Weights of the sources over the steps.
#[derive(Debug, Clone, PartialEq)]
pub struct Mixes {
    /// Names of the sources, with their numbers of tokens if these are known.
    sources: Vec<(String, Option<u64>)>,
    /// Weights of the sources, each with the number of steps done when they begin to apply.
    weights: Vec<(u64, Vec<f64>)>,
}

impl Mixes {
    /// Makes the mixes of a run. The shares of tokens are known only with the manifest of its shards.
    pub fn new(config: &PretrainConfig, manifest: Option<&Manifest>) -> Self {
        let sources = &config.data.sources;
        let weights = config.training.changes(|phase| match phase {
            Some(phase) => phase.weights(sources),
            None => sources.iter().map(|source| source.weight).collect(),
        });
        let mut named = Vec::with_capacity(sources.len());
        for (number, source) in sources.iter().enumerate() {
            let name = manifest.and_then(|manifest| manifest.sources.get(number).cloned());
            let tokens = manifest.map(|manifest| source_tokens(manifest, number));
            named.push((name.unwrap_or_else(|| source.display_name()), tokens));
        }
        Self { sources: named, weights }
    }

    /// True if the mix changes during the run.
    pub fn change(&self) -> bool {
        self.weights.len() > 1
    }

    /// Returns the order of documents for the first mix, and those of later mixes, each with the number of
    /// steps done when it begins.
    pub(super) fn orders(&self, seed: u64) -> (Order, Vec<(u64, Order)>) {
        let mut orders = self
            .weights
            .iter()
            .map(|(from, weights)| (*from, Order::Weighted { seed, weights: weights.as_slice().into() }));
        let (_, first) = orders.next().expect("the first one begins with the run");
        (first, orders.collect())
    }

    /// Returns the share of each source in the tokens of the step after `steps_done`, if the numbers of
    /// tokens are known.
    pub fn shares_at(&self, steps_done: u64) -> Option<Vec<(String, f64)>> {
        let weights = value_at(&self.weights, steps_done);
        let mut shares = Vec::with_capacity(self.sources.len());
        for ((name, tokens), weight) in self.sources.iter().zip(weights) {
            shares.push((name.clone(), (*tokens)? as f64 * weight));
        }
        let sum: f64 = shares.iter().map(|(_, tokens)| tokens).sum();
        for (_, tokens) in &mut shares {
            *tokens /= sum;
        }
        Some(shares)
    }

    /// Formats the mix of the step after `steps_done` as shares of the tokens if they are known, else as
    /// weights.
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

fn source_tokens(manifest: &Manifest, number: usize) -> u64 {
    let shards = manifest.train.shards.iter().filter(|shard| shard.source == number);
    shards.map(|shard| shard.tokens).sum()
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
    fn weights_are_shown_until_there_are_shards() {
        let plain = Mixes::new(&config(""), None);
        assert_eq!((plain.text_at(0), plain.change()), ("web x 1, news x 3".to_string(), false));
        let phases = r#"{"until_step": 4, "max_seq_length": 64, "sources": [{"name": "news", "weight": 0}]}"#;
        let mixes = Mixes::new(&config(phases), None);
        assert!(mixes.change());
        assert_eq!([mixes.text_at(3), mixes.text_at(4)], ["web x 1, news x 0", "web x 1, news x 3"]);
        let (first, later) = mixes.orders(1);
        assert_eq!((first, later), (weighted([1.0, 0.0]), vec![(4, weighted([1.0, 3.0]))]));
    }

    fn weighted(weights: [f64; 2]) -> Order {
        Order::Weighted { seed: 1, weights: weights.into() }
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

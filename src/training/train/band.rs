//! Warns when the training loss leaves the expected band (`evaluation.loss_band`). It only observes the run.

use crate::telemetry::Record;
use config::LossBand;

/// Consecutive records outside the band before the warning: a single one may be chance.
const RECORDS_BEFORE_WARNING: u32 = 2;

/// The expected band of the loss, and the number of consecutive records outside it.
#[derive(Debug, Clone)]
pub struct Band {
    expected: LossBand,
    outside: u32,
}

impl Band {
    /// A band that no record has left yet.
    pub fn new(expected: LossBand) -> Self {
        Self { expected, outside: 0 }
    }

    /// Returns a warning if this record is the second in a row outside the band: once each time the loss
    /// leaves it.
    pub fn look(&mut self, record: &Record) -> Option<String> {
        let (_, loss) = record.values.iter().find(|(tag, _)| tag == "train/loss")?;
        let (low, high) = self.expected.at(record.step)?;
        let side = if *loss > high {
            "above"
        } else if *loss < low {
            "below"
        } else {
            self.outside = 0;
            return None;
        };
        self.outside += 1;
        (self.outside == RECORDS_BEFORE_WARNING).then(|| {
            format!(
                "step {}: the training loss {loss:.3} is {side} {low:.3} to {high:.3}, where that of runs with \
                 the same settings and data lies (`evaluation.loss_band`)",
                record.step
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::BandPoint;

    #[test]
    fn a_loss_that_stays_outside_is_reported_once() {
        let points =
            vec![BandPoint { step: 100, low: 6.0, high: 7.0 }, BandPoint { step: 200, low: 4.0, high: 5.0 }];
        let mut band = Band::new(LossBand { of: String::new(), points });
        assert_eq!(look(&mut band, 50, 99.0), None, "nothing is known before the first point");
        assert_eq!(
            [look(&mut band, 100, 6.5), look(&mut band, 150, 6.1), look(&mut band, 155, 5.5)],
            [None, None, None]
        );
        assert_eq!(look(&mut band, 160, 6.0), None, "one record alone may be chance");
        let warning = look(&mut band, 170, 6.0).unwrap();
        assert!(
            warning.starts_with("step 170: the training loss 6.000 is above 4.600 to 5.600, "),
            "{warning}"
        );
        assert_eq!([look(&mut band, 180, 6.0), look(&mut band, 190, 5.0)], [None, None]);
        assert_eq!(look(&mut band, 195, 3.0), None);
        assert!(look(&mut band, 200, 3.0).unwrap().contains(" is below 4.000 to 5.000, "));
        assert_eq!(look(&mut band, 201, 99.0), None, "nor behind the last");
    }

    /// The warning of `band` for a record of this training loss.
    fn look(band: &mut Band, step: u64, loss: f64) -> Option<String> {
        let values = vec![("train/loss".to_string(), loss), ("eval/loss".to_string(), 99.0)];
        band.look(&Record { step, epoch: 0.0, values })
    }
}

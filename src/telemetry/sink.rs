//! Where records go, and what happens when one of those places fails.

use anyhow::Result;

use crate::telemetry::histogram::Histogram;
use crate::telemetry::record::Record;

/// A place for records.
pub trait Sink {
    /// Takes one record.
    fn write(&mut self, record: &Record) -> Result<()>;

    /// Takes how the weights of each part of the model are spread at a step; most sinks have no place for it.
    fn weights(&mut self, _step: u64, _parts: &[(String, Histogram)]) -> Result<()> {
        Ok(())
    }

    /// Makes everything written durable: a checkpoint of the step that was last written comes next.
    fn sync(&mut self) -> Result<()>;

    /// Makes everything written durable and visible; the run is over.
    fn finish(&mut self) -> Result<()>;
}

/// All sinks of a run.
#[derive(Default)]
pub struct Sinks {
    slots: Vec<Slot>,
}

struct Slot {
    sink: Box<dyn Sink>,
    failed: bool,
}

impl Sinks {
    /// No sinks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a sink; records reach the sinks in the order in which they were added.
    pub fn add(&mut self, sink: impl Sink + 'static) {
        self.slots.push(Slot { sink: Box::new(sink), failed: false });
    }

    /// Hands a record to every sink. Returns a warning for each sink that fails for the first time since it
    /// last worked.
    ///
    /// A failing sink gets the next record all the same: a full disk may have been emptied.
    #[must_use = "the warnings are to be shown"]
    pub fn write(&mut self, record: &Record) -> Vec<String> {
        self.each(|sink| sink.write(record))
    }

    /// Hands how weights are spread to every sink; warnings as for [`Sinks::write`].
    #[must_use = "the warnings are to be shown"]
    pub fn weights(&mut self, step: u64, parts: &[(String, Histogram)]) -> Vec<String> {
        self.each(|sink| sink.weights(step, parts))
    }

    /// Makes what every sink has taken durable; warnings as for [`Sinks::write`].
    #[must_use = "the warnings are to be shown"]
    pub fn sync(&mut self) -> Vec<String> {
        self.each(|sink| sink.sync())
    }

    /// Finishes every sink; warnings as for [`Sinks::write`].
    #[must_use = "the warnings are to be shown"]
    pub fn finish(&mut self) -> Vec<String> {
        self.each(|sink| sink.finish())
    }

    fn each(&mut self, mut action: impl FnMut(&mut dyn Sink) -> Result<()>) -> Vec<String> {
        let mut warnings = Vec::new();
        for slot in &mut self.slots {
            match action(slot.sink.as_mut()) {
                Ok(()) => slot.failed = false,
                Err(e) if !slot.failed => {
                    slot.failed = true;
                    warnings.push(format!("{e:#}; training continues without these records"));
                }
                Err(_) => {}
            }
        }
        warnings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    struct Flaky {
        seen: Rc<RefCell<Vec<u64>>>,
        fails_at: Vec<u64>,
    }

    impl Sink for Flaky {
        fn write(&mut self, record: &Record) -> Result<()> {
            anyhow::ensure!(!self.fails_at.contains(&record.step), "disk full");
            self.seen.borrow_mut().push(record.step);
            Ok(())
        }

        fn sync(&mut self) -> Result<()> {
            anyhow::ensure!(self.seen.borrow().len() < 5, "disk failing");
            Ok(())
        }

        fn finish(&mut self) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_failing_sink_is_reported_once_and_stops_nobody() {
        let (first, second) = (Rc::default(), Rc::default());
        let mut sinks = Sinks::new();
        sinks.add(Flaky { seen: Rc::clone(&first), fails_at: vec![2, 3, 5] });
        sinks.add(Flaky { seen: Rc::clone(&second), fails_at: vec![] });
        let warnings: Vec<usize> =
            (1..=5).map(|step| sinks.write(&Record { step, epoch: 0.0, values: Vec::new() }).len()).collect();
        assert_eq!(warnings, [0, 1, 0, 0, 1]);
        assert_eq!(*first.borrow(), [1, 4]);
        assert_eq!(*second.borrow(), [1, 2, 3, 4, 5]);
        assert_eq!(sinks.sync().len(), 1, "the second one fails");
        assert!(sinks.sync().is_empty(), "and is told once");
        assert!(sinks.finish().is_empty());
    }
}

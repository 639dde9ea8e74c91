//! The trait of a destination of records, and the list of all sinks of a run, which handles their failures.

use anyhow::Result;

use crate::telemetry::histogram::Histogram;
use crate::telemetry::record::Record;

/// A destination of records.
pub trait Sink {
    /// Takes one record.
    fn write(&mut self, record: &Record) -> Result<()>;

    /// Takes the histograms of the weights of each part of the model at a step; most sinks ignore them.
    fn weights(&mut self, _step: u64, _parts: &[(String, Histogram)]) -> Result<()> {
        Ok(())
    }

    /// Makes everything written durable. Called before the checkpoint of the last step written.
    fn sync(&mut self) -> Result<()>;

    /// Makes everything written durable and visible. Called at the end of the run.
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
    /// Returns an empty list of sinks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a sink; records reach the sinks in the order in which they were added.
    pub fn add(&mut self, sink: impl Sink + 'static) {
        self.slots.push(Slot { sink: Box::new(sink), failed: false });
    }

    /// Passes a record to every sink. Returns a warning for each sink that fails for the first time since it
    /// last worked.
    ///
    /// A failing sink still gets the next record: space on a full disk may have been freed.
    #[must_use = "the warnings are to be shown"]
    pub fn write(&mut self, record: &Record) -> Vec<String> {
        self.each(|sink| sink.write(record))
    }

    /// Passes histograms of the weights to every sink; warnings as for [`Sinks::write`].
    #[must_use = "the warnings are to be shown"]
    pub fn weights(&mut self, step: u64, parts: &[(String, Histogram)]) -> Vec<String> {
        self.each(|sink| sink.weights(step, parts))
    }

    /// Makes everything that the sinks took durable; warnings as for [`Sinks::write`].
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

    /// A sink that fails at some steps, and to sync once it has five records.
    struct Flaky {
        written: Rc<RefCell<Vec<u64>>>,
        fails_at: Vec<u64>,
    }

    impl Sink for Flaky {
        fn write(&mut self, record: &Record) -> Result<()> {
            anyhow::ensure!(!self.fails_at.contains(&record.step), "disk full");
            self.written.borrow_mut().push(record.step);
            Ok(())
        }

        fn sync(&mut self) -> Result<()> {
            anyhow::ensure!(self.written.borrow().len() < 5, "disk failing");
            Ok(())
        }

        fn finish(&mut self) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_failing_sink_is_reported_once_and_does_not_affect_the_others() {
        let first = Rc::default();
        let second = Rc::default();
        let mut sinks = Sinks::new();
        sinks.add(Flaky { written: Rc::clone(&first), fails_at: vec![2, 3, 5] });
        sinks.add(Flaky { written: Rc::clone(&second), fails_at: vec![] });
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

//! Writes TensorBoard event files: TFRecord framing around `tensorflow.Event` messages. They contain the
//! scalars of each record, histograms of weights, and the configuration as text and as hyper-parameters.

mod described;
mod messages;

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use chrono::DateTime;
use prost::Message;
use serde_json::Value;

use crate::telemetry::append_log::AppendLog;
use crate::telemetry::histogram::Histogram;
use crate::telemetry::record::Record;
use crate::telemetry::sink::Sink;
use base::fs;

use messages::{Event, HistogramProto, SessionLog, Summary, SummaryValue};

/// The sink that writes `runs/<date>_<host>/events.out.tfevents.*`.
#[derive(Debug)]
pub(super) struct TensorBoard {
    log: AppendLog,
}

impl TensorBoard {
    /// Creates an event file under `runs_folder`: in a new folder for a new run (`None`), else in the folder
    /// of the run's earlier files.
    ///
    /// The file of a resumed run starts with a message that makes TensorBoard drop the values after
    /// `resumed_step`; that of a new run starts with the configuration and the seed.
    pub(super) fn create(
        runs_folder: &Path,
        resumed_step: Option<u64>,
        config: &Value,
        seed: u64,
    ) -> Result<Self> {
        let seconds = now().as_secs();
        let host = host_name();
        let earlier = resumed_step.and_then(|_| newest_folder(runs_folder));
        let folder = earlier.unwrap_or_else(|| runs_folder.join(format!("{}_{host}", date_text(seconds))));
        let mut counter = 0;
        let path = loop {
            let path =
                folder.join(format!("events.out.tfevents.{seconds}.{host}.{}.{counter}", std::process::id()));
            if !fs::exists(&path) {
                break path;
            }
            counter += 1;
        };
        let mut board = Self { log: AppendLog::open(&path)? };
        board.append(0, |event| event.file_version = Some("brain.Event:2".to_string()))?;
        if let Some(step) = resumed_step {
            board.append(step + 1, |event| event.session_log = Some(SessionLog { status: SESSION_START }))?;
        } else {
            let values = described::values(config, seed, now().as_secs_f64());
            board.append(0, |event| event.summary = Some(Summary { values }))?;
        }
        Ok(board)
    }

    /// Appends an event of `step`, which `fill` completes.
    fn append(&mut self, step: u64, fill: impl FnOnce(&mut Event)) -> Result<()> {
        let mut event = Event { wall_time: now().as_secs_f64(), step: step as i64, ..Event::default() };
        fill(&mut event);
        self.log.append(&framed(&event.encode_to_vec()))
    }
}

impl Sink for TensorBoard {
    fn write(&mut self, record: &Record) -> Result<()> {
        // NaN means that a value was not measured: the curve gets no point.
        let measured = record.values.iter().filter(|(_, value)| !value.is_nan());
        let values = measured
            .map(|(tag, value)| SummaryValue {
                tag: tag.clone(),
                simple_value: Some(*value as f32),
                ..SummaryValue::default()
            })
            .collect();
        self.append(record.step, |event| event.summary = Some(Summary { values }))
    }

    fn weights(&mut self, step: u64, parts: &[(String, Histogram)]) -> Result<()> {
        let values = parts.iter().map(|(part, histogram)| histogram_value(part, histogram)).collect();
        self.append(step, |event| event.summary = Some(Summary { values }))
    }

    fn sync(&mut self) -> Result<()> {
        self.log.sync()
    }

    fn finish(&mut self) -> Result<()> {
        self.log.sync()
    }
}

/// Returns the summary of the histogram of one part of the model.
fn histogram_value(part: &str, histogram: &Histogram) -> SummaryValue {
    let Histogram { min, max, num, sum, sum_squares, buckets } = histogram.clone();
    let (bucket_limit, bucket) = buckets.into_iter().unzip();
    let histogram = HistogramProto { min, max, num, sum, sum_squares, bucket_limit, bucket };
    let tag = format!("weights/{part}");
    SummaryValue { tag, histogram: Some(histogram), ..SummaryValue::default() }
}

/// The status `START` of a `SessionLog`: TensorBoard drops earlier events from its step on.
const SESSION_START: i32 = 1;

/// Frames data as a TFRecord: length, checksum of the length, data, checksum of the data.
fn framed(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut record = Vec::with_capacity(data.len() + 16);
    record.extend_from_slice(&length);
    record.extend_from_slice(&masked_checksum(&length).to_le_bytes());
    record.extend_from_slice(data);
    record.extend_from_slice(&masked_checksum(data).to_le_bytes());
    record
}

/// Returns the masked CRC-32C of TFRecord files: rotated and shifted, so that it also protects data that
/// contains checksums.
fn masked_checksum(data: &[u8]) -> u32 {
    crc32c::crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

fn now() -> std::time::Duration {
    // A clock before 1970 is wrong but no reason to stop.
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns the last folder by name; names start with the date.
fn newest_folder(runs_folder: &Path) -> Option<PathBuf> {
    fs::list(runs_folder).ok()?.into_iter().rfind(|path| fs::is_folder(path))
}

fn host_name() -> String {
    let name = fs::host_name().unwrap_or_default();
    let name: String =
        name.trim().chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect();
    if name.is_empty() { "localhost".to_string() } else { name }
}

/// Formats a time in UTC as `20261121-114847`.
fn date_text(seconds: u64) -> String {
    let time = DateTime::from_timestamp(i64::try_from(seconds).unwrap_or_default(), 0).unwrap_or_default();
    time.format("%Y%m%d-%H%M%S").to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read_back(path: &Path) -> Vec<Event> {
        let bytes = std::fs::read(path).unwrap();
        let mut events = Vec::new();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
            assert_eq!(rest[8..12], masked_checksum(&rest[..8]).to_le_bytes());
            let data = &rest[12..12 + length];
            assert_eq!(rest[12 + length..16 + length], masked_checksum(data).to_le_bytes());
            events.push(Event::decode(data).unwrap());
            rest = &rest[16 + length..];
        }
        events
    }

    fn record(step: u64, loss: f64) -> Record {
        Record {
            step,
            epoch: 0.0,
            values: vec![("train/loss".to_string(), loss), ("perf/zero".to_string(), 0.0)],
        }
    }

    #[test]
    fn records_come_back_from_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut board = TensorBoard::create(folder.path(), None, &json!({}), 1).unwrap();
        board.write(&record(1, 2.5)).unwrap();
        board.finish().unwrap();
        let mut resumed = TensorBoard::create(folder.path(), Some(1), &json!({}), 1).unwrap();
        resumed.write(&record(2, 2.25)).unwrap();
        let runs = fs::list(folder.path()).unwrap();
        assert_eq!(runs.len(), 1, "a resumed run goes on in its folder");
        let files = fs::list(&runs[0]).unwrap();
        let events = read_back(&files[0]);
        assert_eq!(events[0].file_version.as_deref(), Some("brain.Event:2"));
        let tags: Vec<&str> =
            events[1].summary.as_ref().unwrap().values.iter().map(|value| value.tag.as_str()).collect();
        assert_eq!(tags, ["config/text_summary", "_hparams_/session_start_info"]);
        let values = &events[2].summary.as_ref().unwrap().values;
        assert_eq!(
            (events[2].step, values[0].tag.as_str(), values[0].simple_value),
            (1, "train/loss", Some(2.5))
        );
        assert_eq!(values[1].simple_value, Some(0.0));
        let events = read_back(&files[1]);
        assert_eq!((events[1].step, events[1].session_log.as_ref().unwrap().status), (2, SESSION_START));
    }

    // The expected bytes are those that `RecordWriter.write(b"abc")` of tensorboard 2.21.0 writes.
    #[test]
    fn framing_is_that_of_tensorboard() {
        let golden = [
            0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xb0, 0x99, 0x49, 0x0e, 0x61, 0x62, 0x63, 0x6e,
            0x57, 0xf1, 0x21,
        ];
        assert_eq!(framed(b"abc"), golden);
    }

    #[test]
    fn dates_are_right_around_leap_days() {
        assert_eq!(date_text(0), "19700101-000000");
        assert_eq!(date_text(951_782_399), "20000228-235959");
        assert_eq!(date_text(951_782_400), "20000229-000000");
        assert_eq!(date_text(4_107_542_400), "21000301-000000");
        assert_eq!(date_text(1_795_261_727), "20261121-114847");
    }
}

//! TensorBoard event files: TFRecord framing around `tensorflow.Event` messages. Scalars of each record,
//! histograms of weights, and the configuration as text and as hyper-parameters.

mod described;
mod messages;

use std::path::Path;
use std::path::PathBuf;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

use anyhow::Result;
use chrono::DateTime;
use prost::Message;
use serde_json::Value;

use crate::fs;
use crate::telemetry::append_log::AppendLog;
use crate::telemetry::histogram::Histogram;
use crate::telemetry::record::Record;
use crate::telemetry::sink::Sink;

use messages::Event;
use messages::HistogramProto;
use messages::SessionLog;
use messages::Summary;
use messages::SummaryValue;

/// The sink behind `runs/<date>_<host>/events.out.tfevents.*`.
#[derive(Debug)]
pub(super) struct TensorBoard {
    log: AppendLog,
}

impl TensorBoard {
    /// Begins an event file under `runs_folder`: in a folder of its own for a new run (`None`), else beside
    /// the earlier ones.
    ///
    /// On a resume TensorBoard is told to forget what came after `resumed_step`; a new run begins with its
    /// configuration and its seed.
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

    fn append(&mut self, step: u64, fill: impl FnOnce(&mut Event)) -> Result<()> {
        let mut event = Event { wall_time: now().as_secs_f64(), step: step as i64, ..Event::default() };
        fill(&mut event);
        self.log.append(&framed(&event.encode_to_vec()))
    }
}

impl Sink for TensorBoard {
    fn write(&mut self, record: &Record) -> Result<()> {
        let value = |(tag, value): &(String, f64)| SummaryValue {
            tag: tag.clone(),
            simple_value: Some(*value as f32),
            ..SummaryValue::default()
        };
        // What was not measured is no point of a curve.
        let measured = record.values.iter().filter(|(_, value)| !value.is_nan());
        let values = measured.map(value).collect();
        self.append(record.step, |event| event.summary = Some(Summary { values }))
    }

    fn weights(&mut self, step: u64, parts: &[(String, Histogram)]) -> Result<()> {
        let value = |(part, histogram): &(String, Histogram)| {
            let Histogram { min, max, num, sum, sum_squares, buckets } = histogram.clone();
            let (bucket_limit, bucket) = buckets.into_iter().unzip();
            let histogram = HistogramProto { min, max, num, sum, sum_squares, bucket_limit, bucket };
            let tag = format!("weights/{part}");
            SummaryValue { tag, histogram: Some(histogram), ..SummaryValue::default() }
        };
        let values = parts.iter().map(value).collect();
        self.append(step, |event| event.summary = Some(Summary { values }))
    }

    fn sync(&mut self) -> Result<()> {
        self.log.sync()
    }

    fn finish(&mut self) -> Result<()> {
        self.log.sync()
    }
}

const SESSION_START: i32 = 1;

/// A TFRecord: length, its checksum, data, its checksum.
fn framed(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut record = Vec::with_capacity(data.len() + 16);
    record.extend_from_slice(&length);
    record.extend_from_slice(&masked_checksum(&length).to_le_bytes());
    record.extend_from_slice(data);
    record.extend_from_slice(&masked_checksum(data).to_le_bytes());
    record
}

/// The CRC-32C of TFRecord files, rotated and shifted so that a checksum of data that holds checksums stays
/// good.
fn masked_checksum(data: &[u8]) -> u32 {
    crc32c::crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

fn now() -> std::time::Duration {
    // A clock before 1970 is wrong, but no reason to stop.
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn newest_folder(runs_folder: &Path) -> Option<PathBuf> {
    fs::list(runs_folder).ok()?.into_iter().rfind(|path| fs::is_folder(path))
}

fn host_name() -> String {
    let name = fs::host_name().unwrap_or_default();
    let name: String =
        name.trim().chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect();
    if name.is_empty() { "localhost".to_string() } else { name }
}

/// `20261121-114847` in UTC.
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
        let (mut events, mut rest) = (Vec::new(), &bytes[..]);
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

    // Bytes that tensorboard 2.21.0 writes: `RecordWriter.write(b"abc")`.
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

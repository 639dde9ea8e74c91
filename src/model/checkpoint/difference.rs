//! The first difference between the tensors of two folders, byte for byte.
//!
//! This module compares no other files, and does not know what the tensors mean.

use std::collections::BTreeSet;
use std::fmt;

use anyhow::Result;

use crate::checkpoint::open::Checkpoint;
use crate::checkpoint::tensor_file::{TensorFile, TensorInfo};

/// The first difference between two checkpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Path of the file, relative to both folders.
    pub file: String,
    /// Name of the tensor; `None` if the file is missing in one of the folders.
    pub tensor: Option<String>,
    /// Description of the difference.
    pub what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.tensor {
            Some(tensor) => write!(f, "{}: tensor `{tensor}` {}", self.file, self.what),
            None => write!(f, "{}: {}", self.file, self.what),
        }
    }
}

/// Numbers of files, tensors and bytes that were compared and are equal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Same {
    /// Number of files with tensors.
    pub files: usize,
    /// Number of tensors in these files.
    pub tensors: usize,
    /// Number of bytes of their values.
    pub bytes: u64,
}

/// Compares all files with tensors in the order of their names, and their tensors by name. Values are
/// compared bit for bit, so that NaN equals itself, and zero does not equal minus zero.
pub fn compare_tensors(left: &Checkpoint, right: &Checkpoint) -> Result<Result<Same, Difference>> {
    let left_files = tensor_files(left);
    let right_files = tensor_files(right);
    let mut same = Same::default();
    for file in left_files.union(&right_files) {
        let there = (left_files.contains(file), right_files.contains(file));
        if there != (true, true) {
            return Ok(Err(only_once(file, None, there.0)));
        }
        let left = TensorFile::open(&left.path().join(file))?;
        let right = TensorFile::open(&right.path().join(file))?;
        if let Some(difference) = compare_files(file, &left, &right, &mut same)? {
            return Ok(Err(difference));
        }
        same.files += 1;
    }
    Ok(Ok(same))
}

fn tensor_files(checkpoint: &Checkpoint) -> BTreeSet<String> {
    checkpoint.names().filter(|name| name.ends_with(".safetensors")).map(str::to_string).collect()
}

fn compare_files(
    file: &str,
    left: &TensorFile,
    right: &TensorFile,
    same: &mut Same,
) -> Result<Option<Difference>> {
    for name in left.names().union(&right.names()) {
        let (Some(one), Some(other)) = (left.info(name), right.info(name)) else {
            return Ok(Some(only_once(file, Some(name), left.info(name).is_some())));
        };
        if one != other {
            let what = format!(
                "is {} {:?} in the first, {} {:?} in the second",
                one.dtype, one.shape, other.dtype, other.shape
            );
            return Ok(Some(Difference { file: file.to_string(), tensor: Some(name.clone()), what }));
        }
        let values = left.bytes(name)?;
        let others = right.bytes(name)?;
        if values != others {
            let what = first_values(&one, &values, &others);
            return Ok(Some(Difference { file: file.to_string(), tensor: Some(name.clone()), what }));
        }
        same.tensors += 1;
        same.bytes += one.bytes;
    }
    Ok(None)
}

/// The difference of a file or a tensor that is in one checkpoint only.
fn only_once(file: &str, tensor: Option<&String>, in_first: bool) -> Difference {
    let there = if in_first { "first" } else { "second" };
    Difference {
        file: file.to_string(),
        tensor: tensor.cloned(),
        what: format!("is there in the {there} alone"),
    }
}

/// Describes the differences of two tensors with the same type and shape: the number of values that differ,
/// and the first of them.
fn first_values(info: &TensorInfo, values: &[u8], others: &[u8]) -> String {
    let count = info.shape.iter().product::<usize>().max(1);
    let width = (values.len() / count).max(1);
    let pairs = values.chunks(width).zip(others.chunks(width)).enumerate();
    let mut differing = pairs.filter(|(_, (one, other))| one != other);
    let Some((index, (one, other))) = differing.next() else { return "differs".to_string() };
    let differing = 1 + differing.count();
    format!(
        "differs in {differing} of {count} values, first in value {index}: {} in the first, {} in the second",
        value_text(&info.dtype, one),
        value_text(&info.dtype, other)
    )
}

fn value_text(dtype: &str, bytes: &[u8]) -> String {
    match (dtype, bytes.try_into()) {
        ("F32", Ok(bytes)) => format!("{:e}", f32::from_le_bytes(bytes)),
        // Least significant byte last, as numbers are written.
        _ => bytes.iter().rev().fold("0x".to_string(), |text, byte| format!("{text}{byte:02x}")),
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device, Tensor};

    use super::*;
    use crate::checkpoint::Part;
    use base::sealed::write_sealed;

    /// A checkpoint with weights and moments; `change` changes the moments.
    fn checkpoint(change: impl FnOnce(&mut Vec<(String, Tensor)>)) -> (tempfile::TempDir, Checkpoint) {
        let mut moments = vec![
            ("exp_avg".to_string(), tensor(&[1.0, 2.0, f32::NAN, 0.0])),
            ("exp_avg_sq".to_string(), tensor(&[0.5; 4])),
            ("updates".to_string(), Tensor::new(&[3i64], &Device::Cpu).unwrap()),
        ];
        change(&mut moments);
        let parts = vec![
            ("model.safetensors".to_string(), Part::Tensors(vec![("w".to_string(), tensor(&[1.0, -1.0]))])),
            ("trainer/optimizer.safetensors".to_string(), Part::Tensors(moments)),
            ("trainer/state.json".to_string(), Part::Json(serde_json::json!({}))),
        ];
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("checkpoint-3");
        write_sealed(&path, 3, &parts).unwrap();
        (folder, Checkpoint::open(&path).unwrap())
    }

    fn tensor(values: &[f32]) -> Tensor {
        Tensor::new(values, &Device::Cpu).unwrap()
    }

    fn difference(change: impl FnOnce(&mut Vec<(String, Tensor)>)) -> Result<Same, String> {
        let (_first, left) = checkpoint(|_| {});
        let (_second, right) = checkpoint(change);
        compare_tensors(&left, &right).unwrap().map_err(|difference| difference.to_string())
    }

    #[test]
    fn equal_bytes_are_equal_including_nan() {
        assert_eq!(difference(|_| {}), Ok(Same { files: 2, tensors: 4, bytes: 8 + 16 + 16 + 8 }));
    }

    #[test]
    fn one_changed_bit_is_found_and_its_tensor_named() {
        let changed = difference(|moments| {
            let bits = f32::from_bits(2f32.to_bits() ^ 1);
            moments[0].1 = Tensor::new(&[1.0, bits, f32::NAN, 0.0], &Device::Cpu).unwrap();
        });
        let message = changed.unwrap_err();
        let start = "trainer/optimizer.safetensors: tensor `exp_avg` differs in 1 of 4 values, first in value 1: 2e0 ";
        assert!(message.starts_with(start), "{message}");
        // Equal as numbers, but not as bytes.
        let signed = difference(|moments| {
            moments[0].1 = Tensor::new(&[1.0f32, 2.0, f32::NAN, -0.0], &Device::Cpu).unwrap();
        });
        assert!(signed.unwrap_err().contains("value 3: 0e0 in the first, -0e0 in the second"));
        let counted = difference(|moments| moments[2].1 = Tensor::new(&[4i64], &Device::Cpu).unwrap());
        assert!(counted.unwrap_err().contains("`updates` differs in 1 of 1 values"));
    }

    #[test]
    fn other_shapes_types_and_names_are_differences() {
        let shaped = difference(|moments| moments[1].1 = moments[1].1.reshape((2, 2)).unwrap()).unwrap_err();
        assert!(
            shaped.contains("`exp_avg_sq` is F32 [4] in the first, F32 [2, 2] in the second"),
            "{shaped}"
        );
        let typed = difference(|moments| moments[1].1 = moments[1].1.to_dtype(DType::F64).unwrap());
        assert!(typed.unwrap_err().contains("F64 [4] in the second"));
        let short = difference(|moments| moments.truncate(2)).unwrap_err();
        assert!(short.contains("tensor `updates` is there in the first alone"), "{short}");
    }
}

//! safetensors files: written as a stream of one tensor at a time, and read after every size was checked.
//!
//! This module knows no names of tensors. The bytes of a file depend on names and values only.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use candle_core::{DType, Device, Tensor};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, View};
use serde::Deserializer;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::json;

use base::error::Problem;
use base::fs;
use base::fs::File;

/// Size of the largest header that is accepted, as in the safetensors library.
const HEADER_BYTES_MAX: u64 = 100_000_000;

/// Description of a tensor in a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Name of its type in safetensors, such as `F32` or `I64`.
    pub dtype: String,
    /// True if its values are floating-point numbers of 16 bits or more.
    pub is_float: bool,
    /// Shape of the tensor.
    pub shape: Vec<usize>,
    /// Number of bytes of its values.
    pub bytes: u64,
}

/// An open safetensors file, whose header was checked against its length. Tensors are read when they are
/// asked for.
#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    file: File,
    data_start: u64,
    metadata: Metadata,
}

impl TensorFile {
    /// Opens the file at `path`. A damaged header, sizes that contradict the file's length, and a repeated
    /// name are errors.
    pub fn open(path: &Path) -> Result<Self> {
        let file = fs::open(path)?;
        let file_bytes = fs::len_bytes(path)?;
        let mut head = vec![0; fs::SNIFFED_BYTES];
        let count =
            file.read_at(&mut head, 0).with_context(|| format!("cannot read `{}`", path.display()))?;
        // The header starts after its own length, which may look like any other format.
        if head[..count].get(8) != Some(&b'{') {
            fs::refuse_mistaken(path, &head[..count], "a safetensors file")?;
        }
        let mut length = [0; 8];
        let header_bytes = match file.read_exact_at(&mut length, 0) {
            Ok(()) => u64::from_le_bytes(length),
            Err(_) => {
                return Err(refuse(path, format!("is no safetensors file: it has {file_bytes} bytes")).into());
            }
        };
        if header_bytes > HEADER_BYTES_MAX || header_bytes + 8 > file_bytes {
            return Err(refuse(path, format!(
                "is not a valid safetensors file: a header of {header_bytes} bytes in a file of {file_bytes}"
            ))
            .into());
        }
        let mut header = vec![0; header_bytes as usize];
        file.read_exact_at(&mut header, 8).with_context(|| format!("cannot read `{}`", path.display()))?;
        let metadata: Metadata = serde_json::from_slice(&header).map_err(|e| {
            refuse(path, format!("has no valid header in its first {} bytes: {e}", 8 + header_bytes))
        })?;
        if let Some(name) = repeated_name(&header) {
            return Err(refuse(path, format!("holds tensor `{name}` twice")).into());
        }
        let data_start = 8 + header_bytes;
        let data_bytes = metadata.data_len() as u64;
        if data_start.saturating_add(data_bytes) != file_bytes {
            let message = format!(
                "is not a valid safetensors file: its tensors end at byte {}, the file at {file_bytes}",
                data_start.saturating_add(data_bytes)
            );
            return Err(refuse(path, message).into());
        }
        Ok(Self { path: path.to_path_buf(), file, data_start, metadata })
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Names of the tensors, sorted.
    pub fn names(&self) -> BTreeSet<String> {
        self.metadata.offset_keys().into_iter().collect()
    }

    /// Reads one tensor, in the type of the file, on the CPU.
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        let info = self.metadata.info(name).ok_or_else(|| self.tensor_problem(name, "is missing"))?;
        let dtype = DType::try_from(info.dtype).map_err(|_| {
            self.tensor_problem(name, &format!("has type {:?}, which is not supported", info.dtype))
        })?;
        let data = self.bytes(name)?;
        let tensor = Tensor::from_raw_buffer(&data, dtype, &info.shape, &Device::Cpu)
            .map_err(|e| self.tensor_problem(name, &format!("cannot be read: {e}")))?;
        Ok(tensor)
    }

    /// Reads the values of a tensor, as the bytes of the file.
    pub fn bytes(&self, name: &str) -> Result<Vec<u8>> {
        let info = self.metadata.info(name).ok_or_else(|| self.tensor_problem(name, "is missing"))?;
        let (start, end) = info.data_offsets;
        // In range: the header was checked against the length of the file.
        let mut data = vec![0; end - start];
        let read = self.file.read_exact_at(&mut data, self.data_start + start as u64);
        read.with_context(|| format!("cannot read tensor `{name}` of `{}`", self.path.display()))?;
        Ok(data)
    }

    /// Type, shape and size of a tensor; `None` if there is no tensor with this name.
    pub fn info(&self, name: &str) -> Option<TensorInfo> {
        let info = self.metadata.info(name)?;
        let (start, end) = info.data_offsets;
        let is_float = matches!(info.dtype, Dtype::F16 | Dtype::BF16 | Dtype::F32 | Dtype::F64);
        let dtype = format!("{:?}", info.dtype);
        Some(TensorInfo { dtype, is_float, shape: info.shape.clone(), bytes: (end - start) as u64 })
    }

    /// Reads all tensors, by name.
    pub fn tensors(&self) -> Result<BTreeMap<String, Tensor>> {
        self.names().into_iter().map(|name| self.tensor(&name).map(|tensor| (name, tensor))).collect()
    }

    fn tensor_problem(&self, name: &str, message: &str) -> Problem {
        Problem::new(format!("tensor `{name}` {message}")).at(self.path.display())
    }
}

fn refuse(path: &Path, message: String) -> Problem {
    Problem::new(message).at(path.display()).hint("is the file complete?")
}

/// Writes a safetensors file with the metadata `format = pt`, which transformers requires.
///
/// Tensors are in the order of the safetensors library: widest type first, then by name. Writing takes the
/// memory of one tensor.
pub fn write_tensors(writer: &mut impl Write, tensors: &[(String, Tensor)]) -> Result<()> {
    let mut sorted: Vec<&(String, Tensor)> = tensors.iter().collect();
    sorted.sort_by(|(a, left), (b, right)| {
        right.dtype().size_in_bytes().cmp(&left.dtype().size_in_bytes()).then_with(|| a.cmp(b))
    });
    let header = header(&sorted)?;
    writer.write_all(&(header.len() as u64).to_le_bytes())?;
    writer.write_all(&header)?;
    for (name, tensor) in sorted {
        let values = tensor
            .to_device(&Device::Cpu)
            .and_then(|t| t.flatten_all())
            .with_context(|| format!("cannot copy tensor `{name}`"))?;
        write_values(writer, &values)?;
    }
    Ok(())
}

/// Number of values that are copied at once. An embedding is a large part of a model, and a copy of all of it
/// would be the peak of a run's memory.
const COPIED_VALUES: usize = 1 << 18;

/// Writes the values of a tensor of shape `[N]` on the CPU.
fn write_values(writer: &mut impl Write, values: &Tensor) -> Result<()> {
    let count = values.elem_count();
    for first in (0..count).step_by(COPIED_VALUES) {
        let some = values.narrow(0, first, COPIED_VALUES.min(count - first))?;
        let bytes: Cow<'_, [u8]> = View::data(&some);
        writer.write_all(&bytes)?;
    }
    Ok(())
}

/// Upper bound on the bytes of the file that [`write_tensors`] writes.
pub(super) fn size_bytes(tensors: &[(String, Tensor)]) -> u64 {
    let header_bytes_of_one = 200;
    tensors
        .iter()
        .map(|(name, tensor)| data_bytes(tensor) + name.len() as u64 + header_bytes_of_one)
        .sum::<u64>()
        + 1024
}

fn data_bytes(tensor: &Tensor) -> u64 {
    (tensor.elem_count() * tensor.dtype().size_in_bytes()) as u64
}

fn header(sorted: &[&(String, Tensor)]) -> Result<Vec<u8>> {
    let mut entries = serde_json::Map::new();
    entries.insert("__metadata__".to_string(), json!({ "format": "pt" }));
    let mut offset = 0;
    for (name, tensor) in sorted {
        let end = offset + data_bytes(tensor);
        let dtype = dtype_name(tensor.dtype())
            .ok_or_else(|| Problem::new(format!("tensor `{name}` has type {:?}", tensor.dtype())))?;
        let entry = json!({ "dtype": dtype, "shape": tensor.dims(), "data_offsets": [offset, end] });
        if entries.insert(name.clone(), entry).is_some() {
            return Err(Problem::new(format!("tensor `{name}` is to be written twice")).into());
        }
        offset = end;
    }
    let mut header = serde_json::to_vec(&entries)?;
    // The format requires that the data is aligned to eight bytes, so the header is padded with spaces.
    header.resize(header.len().next_multiple_of(8), b' ');
    Ok(header)
}

fn dtype_name(dtype: DType) -> Option<&'static str> {
    match dtype {
        DType::U8 => Some("U8"),
        DType::U32 => Some("U32"),
        DType::I64 => Some("I64"),
        DType::BF16 => Some("BF16"),
        DType::F16 => Some("F16"),
        DType::F32 => Some("F32"),
        DType::F64 => Some("F64"),
        _ => None,
    }
}

/// The first name that occurs twice in a header; a JSON map would silently keep the last one.
fn repeated_name(header: &[u8]) -> Option<String> {
    struct Names;
    impl<'de> Visitor<'de> for Names {
        type Value = Option<String>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a safetensors header")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut seen = BTreeSet::new();
            let mut repeated = None;
            while let Some((name, _)) = map.next_entry::<String, IgnoredAny>()? {
                if !seen.insert(name.clone()) {
                    repeated.get_or_insert(name);
                }
            }
            Ok(repeated)
        }
    }
    serde_json::Deserializer::from_slice(header).deserialize_map(Names).ok().flatten()
}

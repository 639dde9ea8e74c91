//! Small valid files of every kind that the program reads, and how each is read.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use mlmtrain::config::DataConfig;
use mlmtrain::config::TokenizerConfig;
use mlmtrain::config::load_pretrain;
use mlmtrain::corpus::Corpus;
use mlmtrain::corpus::Item;
use mlmtrain::corpus::Side;
use mlmtrain::families::Family;
use mlmtrain::shards::Manifest;
use mlmtrain::shards::ShardSet;
use mlmtrain::shards::ShardWriter;
use mlmtrain::shards::SplitEntry;
use mlmtrain::tokenizer::Tokenizer;
use mlmtrain::tokenizer::Trainer;
use mlmtrain::tokenizer::TrainerOptions;
use parquet::data_type::ByteArray;
use parquet::data_type::ByteArrayType;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::json;
use sha2::Digest;
use sha2::Sha256;

use crate::material;

/// Documents of each corpus.
const DOCUMENTS: u64 = 24;

/// Kinds that are no corpus come this many times as often as one format of a corpus.
const WEIGHT: usize = 6;

/// How many documents were read.
pub(super) type Outcome = Result<u64>;

pub(super) type Compress = fn(&[u8]) -> Vec<u8>;

/// A file and how it is read.
#[derive(Clone)]
pub(super) struct Input {
    pub(super) name: String,
    pub(super) path: PathBuf,
    /// Its undamaged content.
    pub(super) bytes: Vec<u8>,
    /// Its content before compression, and how to compress it: damage inside passes every checksum.
    pub(super) inside: Option<(Vec<u8>, Compress)>,
    /// What the undamaged one gives.
    pub(super) documents: u64,
    pub(super) read: Arc<dyn Fn(&Path) -> Outcome + Send + Sync>,
}

impl Input {
    /// A file that is read in a planted way.
    pub(super) fn planted(read: fn(&Path) -> Outcome) -> Self {
        Self {
            name: "planted".to_string(),
            path: std::env::temp_dir().join("planted"),
            bytes: b"1".to_vec(),
            inside: None,
            documents: 0,
            read: Arc::new(read),
        }
    }

    pub(super) fn write(&self, bytes: &[u8]) {
        // A planted one is never looked at.
        if let Some(folder) = self.path.parent().filter(|_| self.name != "planted") {
            fs::create_dir_all(folder).unwrap();
            fs::write(&self.path, bytes).unwrap();
        }
    }
}

/// Every kind of input; each lies in a folder of its own below `folder`.
pub(super) fn all(folder: &Path) -> Vec<Input> {
    let mut inputs = Vec::new();
    for (name, source, bytes) in plain_corpora() {
        for (extension, compress) in COMPRESSIONS {
            let input = corpus(folder, &format!("{name}{extension}"), &source, compress(&bytes));
            inputs.push(Input { inside: Some((bytes.clone(), compress)), ..input });
        }
        inputs.push(corpus(folder, name, &source, bytes));
    }
    let others = [
        corpus(folder, "corpus.parquet", &json!({}), parquet_bytes()),
        tokenizer(&folder.join("tokenizer")),
        shard(&folder.join("shard"), false),
        shard(&folder.join("signed-shard"), true),
        manifest(&folder.join("manifest")),
        config(&folder.join("config")),
    ];
    inputs.extend(others.iter().cycle().take(WEIGHT * others.len()).cloned());
    inputs
}

fn texts() -> Vec<String> {
    let text =
        |n| format!("Document {n} begins here, äiti \u{1f98a} \"quoted\", and goes on for {} words.", n * 37);
    (0..DOCUMENTS).map(text).collect()
}

/// File name, what the configuration says of the source besides its files, and content.
fn plain_corpora() -> Vec<(&'static str, serde_json::Value, Vec<u8>)> {
    let texts = texts();
    let objects: Vec<_> =
        texts.iter().enumerate().map(|(n, text)| json!({"id": n, "text": text, "score": 0.5})).collect();
    let lines: Vec<String> = objects.iter().map(ToString::to_string).collect();
    let tagged = texts
        .iter()
        .map(|text| format!("<doc id=\"1\" title=\"a\">\n{text}\n</doc>\n"))
        .collect::<Vec<_>>()
        .concat();
    let quoted = |text: &String| format!("\"{}\"", text.replace('"', "\"\""));
    let columns = |separator: &str| {
        let rows = texts.iter().enumerate().map(|(n, text)| format!("{n}{separator}{}\n", quoted(text)));
        format!("id{separator}text\n") + &rows.collect::<String>()
    };
    vec![
        ("lines.txt", json!({"document": "line"}), texts.join("\n").into_bytes()),
        ("paragraphs.txt", json!({"document": "paragraph"}), texts.join("\n\n").into_bytes()),
        ("tags.txt", json!({"document": "doc_tag"}), tagged.into_bytes()),
        ("corpus.jsonl", json!({}), lines.join("\n").into_bytes()),
        ("array.json", json!({}), format!("[{}]", lines.join(",\n")).into_bytes()),
        ("corpus.csv", json!({}), columns(",").into_bytes()),
        ("corpus.tsv", json!({}), columns("\t").into_bytes()),
    ]
}

const COMPRESSIONS: [(&str, Compress); 4] = [(".gz", gzip), (".zst", zstd), (".bz2", bzip2), (".xz", xz)];

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).unwrap()
}

pub(super) fn bzip2(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(super) fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 3);
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn corpus(folder: &Path, name: &str, source: &serde_json::Value, bytes: Vec<u8>) -> Input {
    let path = folder.join(name).join(name);
    let mut source = source.clone();
    source["files"] = json!([path]);
    // Otherwise most damage would end at the first byte that is no UTF-8.
    source["invalid_utf8"] = json!("replace");
    let config: DataConfig = serde_json::from_value(json!({"sources": [source]})).unwrap();
    let read = move |_: &Path| {
        let mut documents = 0;
        for item in Corpus::open(&config)?.documents() {
            documents += u64::from(matches!(item?, Item::Document(_)));
        }
        Ok(documents)
    };
    Input { name: name.to_string(), path, bytes, inside: None, documents: DOCUMENTS, read: Arc::new(read) }
}

fn parquet_bytes() -> Vec<u8> {
    let schema = Arc::new(parse_message_type("message rows { required binary text (UTF8); }").unwrap());
    let mut file = SerializedFileWriter::new(Vec::new(), schema, Arc::default()).unwrap();
    // Two row groups, so that there is more than one of everything.
    for texts in texts().chunks(DOCUMENTS as usize / 2) {
        let values: Vec<ByteArray> = texts.iter().map(|text| text.as_str().into()).collect();
        let mut group = file.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<ByteArrayType>().write_batch(&values, None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    file.into_inner().unwrap()
}

fn tokenizer(folder: &Path) -> Input {
    let config = TokenizerConfig { vocab_size: 300, ..TokenizerConfig::default() };
    let mut trainer = Trainer::new(TrainerOptions::new(&config, Family::ROBERTA, 512)).unwrap();
    trainer.add(&texts()).unwrap();
    let made = trainer.finish(|_| {}).unwrap().tokenizer;
    let bytes = made.files().iter().find(|(name, _)| name == "tokenizer.json").unwrap().1.clone();
    let read = |path: &Path| {
        let tokenizer = Tokenizer::load(path)?;
        // One that loads must not panic when it is used either; whether it has a use is another question.
        let ids = tokenizer.encode("the fox, äiti <mask>").unwrap_or_default();
        let _ = tokenizer.decode(&ids, true);
        Ok(1)
    };
    Input {
        name: "tokenizer.json".to_string(),
        path: folder.join("tokenizer.json"),
        bytes,
        inside: None,
        documents: 1,
        read: Arc::new(read),
    }
}

/// A folder of one shard.
fn shards(folder: &Path) -> Manifest {
    let mut writer = ShardWriter::new(folder, Side::Train, "fingerprint", 1000, 1 << 20);
    (0..DOCUMENTS as u32).for_each(|n| writer.push(0, &(n..2 * n + 3).collect::<Vec<_>>(), 10).unwrap());
    let manifest = Manifest {
        version: Manifest::VERSION,
        settings_sha256: String::new(),
        tokenizer: "fingerprint".to_string(),
        vocab_size: 1000,
        sources: vec!["text".to_string()],
        documents_read: DOCUMENTS,
        without_tokens: 0,
        train: writer.finish().unwrap(),
        validation: SplitEntry::default(),
    };
    manifest.write(folder).unwrap();
    manifest
}

fn read_shards(folder: &Path) -> Outcome {
    let set = ShardSet::open(folder, Side::Train)?;
    for index in 0..set.num_documents() {
        set.document(index)?;
    }
    set.lengths()?;
    Ok(set.num_documents())
}

/// A shard; a signed one has its damage vouched for by the manifest, so that the hash does not find it.
fn shard(folder: &Path, is_signed: bool) -> Input {
    let manifest = shards(folder);
    let path = folder.join(&manifest.train.shards[0].file);
    let read = move |path: &Path| {
        if is_signed {
            let (bytes, mut manifest) = (fs::read(path)?, manifest.clone());
            let entry = &mut manifest.train.shards[0];
            entry.bytes = bytes.len() as u64;
            entry.sha256 =
                Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
            fs::write(path.with_file_name("manifest.json"), serde_json::to_vec(&manifest)?)?;
        }
        read_shards(path.parent().unwrap())
    };
    let (name, bytes) = (if is_signed { "signed shard" } else { "shard" }, fs::read(&path).unwrap());
    Input { name: name.to_string(), path, bytes, inside: None, documents: DOCUMENTS, read: Arc::new(read) }
}

fn manifest(folder: &Path) -> Input {
    shards(folder);
    let path = folder.join("manifest.json");
    let bytes = fs::read(&path).unwrap();
    let read = |path: &Path| read_shards(path.parent().unwrap());
    Input {
        name: "manifest.json".to_string(),
        path,
        bytes,
        inside: None,
        documents: DOCUMENTS,
        read: Arc::new(read),
    }
}

fn config(folder: &Path) -> Input {
    let read = |path: &Path| {
        load_pretrain(path, &[])?;
        Ok(1)
    };
    let bytes = material::CONFIG.as_bytes().to_vec();
    Input {
        name: "config.yaml".to_string(),
        path: folder.join("config.yaml"),
        bytes,
        inside: None,
        documents: 1,
        read: Arc::new(read),
    }
}

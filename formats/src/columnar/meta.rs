//! What a file says of the history as a whole, as key-value metadata that other tools can show.

use std::collections::HashMap;

use memchr::memmem;

use crate::error::{ReadError, Result};
use crate::history::{KeyForm, Meta, Order, Status};
use crate::json::value::{from_json, to_json};
use crate::value::Value;

/// Version of the columnar form: files of another one are refused.
const VERSION: &str = "1";
/// Checksum of each row group.
pub(super) const GROUP_SUMS: &str = "elench.checksums";
/// Checksum of the footer.
pub(super) const META_SUM: &str = "elench.checksum";
/// What stands for that checksum until it is known.
pub(super) const NO_SUM: &str = "00000000";

/// Columns in which nothing is, which need not be decoded.
pub(super) const VOID: &str = "elench.void";

/// Key-value metadata.
pub(super) type Pairs = Vec<(String, String)>;

/// The metadata of a history's file.
pub(super) fn encode(meta: &Meta, workload: Option<&str>, counts: [u64; 4]) -> Pairs {
    let counts: Vec<String> =
        Status::ALL.iter().map(|s| format!("\"{}\": {}", s.name(), counts[*s as usize])).collect();
    let mut out: Pairs = [
        ("version", VERSION.to_string()),
        ("format", meta.format.clone()),
        ("time_base", "nanoseconds since the start of the run".into()),
        ("keys", meta.keys.name().into()),
        ("key_reason", meta.key_reason.clone()),
        ("real_time", meta.real_time.to_string()),
        ("order", meta.order.name().into()),
        ("epochs_recorded", meta.epochs_recorded.to_string()),
        ("repairs", json_strings(&meta.repairs)),
        ("notes", json_strings(&meta.notes)),
        ("doubts", json_strings(&meta.doubts)),
        ("partial", json_strings(meta.partial.as_slice())),
        ("counts", format!("{{{}}}", counts.join(", "))),
    ]
    .into_iter()
    .map(|(k, v)| (format!("elench.{k}"), v))
    .collect();
    if let Some(workload) = workload {
        out.push(("elench.workload".into(), workload.into()));
    }
    out
}

/// What a file's metadata says, or `None` when it is not one of ours.
pub(super) fn decode(pairs: &HashMap<String, String>) -> Result<Option<Meta>> {
    let get = |key: &str| pairs.get(&format!("elench.{key}")).map(String::as_str);
    let Some(version) = get("version") else { return Ok(None) };
    if version.split('.').next() != Some(VERSION) {
        return Err(ReadError::new(format!(
            "the file is of version {version} of the columnar form, this program reads version {VERSION}"
        ))
        .hint("read it with the program that wrote it, or a newer one"));
    }
    let odd = |key: &str| ReadError::new(format!("the file's metadata is damaged: elench.{key} is not understood"));
    let flag = |key: &str| match get(key) {
        Some("true") => Ok(true),
        Some("false") | None => Ok(false),
        Some(_) => Err(odd(key)),
    };
    Ok(Some(Meta {
        format: get("format").unwrap_or_default().into(),
        container: None,
        keys: get("keys").map_or(Some(KeyForm::None), KeyForm::from_name).ok_or_else(|| odd("keys"))?,
        key_reason: get("key_reason").unwrap_or_default().into(),
        real_time: flag("real_time")?,
        order: get("order").map_or(Some(Order::Index), Order::from_name).ok_or_else(|| odd("order"))?,
        epochs_recorded: flag("epochs_recorded")?,
        repairs: strings(get("repairs")).ok_or_else(|| odd("repairs"))?,
        notes: strings(get("notes")).ok_or_else(|| odd("notes"))?,
        doubts: strings(get("doubts")).ok_or_else(|| odd("doubts"))?,
        partial: strings(get("partial")).ok_or_else(|| odd("partial"))?.pop(),
    }))
}

/// The checksum within a Parquet file's footer, of all the footer's bytes but its own.
///
/// It is found in the bytes, not in what they decode to: so nothing that decoding makes of a damaged footer is believed,
/// and whatever the footer says (schema, offsets, sizes, counts, codecs, encodings, statistics) is covered. The footer's
/// last metadata pair is that of the checksum, so that no text of a history can be taken for it.
pub(super) struct FooterSum<'a> {
    /// Where it lies in the footer.
    pub(super) at: usize,
    written: &'a [u8],
    pub(super) computed: String,
}

impl<'a> FooterSum<'a> {
    /// [`META_SUM`] and the head of its value, as Thrift's compact protocol writes them: field 1, text of 15 bytes; field
    /// 2, text of eight.
    const MARK: &'static [u8] = b"\x18\x0felench.checksum\x18\x08";

    /// The checksum of this footer, if it has one.
    pub(super) fn find(footer: &'a [u8]) -> Option<Self> {
        let at = memmem::rfind(footer, Self::MARK)? + Self::MARK.len();
        let (before, rest) = footer.split_at(at);
        let (written, after) = rest.split_at_checked(NO_SUM.len())?;
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(before);
        hasher.update(after);
        Some(FooterSum { at, written, computed: format!("{:08x}", hasher.finalize()) })
    }

    /// Is the footer what it was when its checksum was written?
    pub(super) fn holds(&self) -> bool {
        self.written == self.computed.as_bytes()
    }
}

fn json_strings(texts: &[String]) -> String {
    to_json(&Value::Vector(texts.iter().map(|t| Value::str(t)).collect()))
}

fn strings(json: Option<&str>) -> Option<Vec<String>> {
    let Some(json) = json else { return Some(Vec::new()) };
    let list = from_json(json).ok()?;
    list.as_vector()?.iter().map(|v| if let Value::Str(s) = v { Some(s.to_string()) } else { None }).collect()
}

//! Reader of the archives of PyTorch: zip files whose entries are stored without compression.

use std::collections::HashMap;
use std::io::{Read, Seek, SeekFrom};

/// Maximum size of an entry that is read whole, in bytes.
const MAX_ENTRY: u64 = 256 << 20;
/// Maximum size of the list of entries, in bytes.
const MAX_DIRECTORY: u64 = 64 << 20;
/// Maximum distance of the end record from the end of the file: its size and that of a comment.
const MAX_END: u64 = 22 + u16::MAX as u64;

/// Archive with the places of its entries.
pub(super) struct Archive<R> {
    reader: R,
    /// Position of the header and size of each entry, by its name without the outermost folder.
    entries: HashMap<String, (u64, u64)>,
}

impl<R: Read + Seek> Archive<R> {
    /// Reads the list of entries.
    ///
    /// # Errors
    /// A description of the problem if the file is no complete zip archive or entries are
    /// compressed.
    pub(super) fn new(mut reader: R) -> Result<Self, String> {
        let (count, size, offset) = directory(&mut reader)?;
        if size > MAX_DIRECTORY {
            return Err("the list of its entries is too long".into());
        }
        let bytes = read_at(&mut reader, offset, size)?;
        let mut entries = HashMap::new();
        let mut rest = &bytes[..];
        for _ in 0..count {
            let short = || "the list of its entries is damaged".to_owned();
            let header =
                rest.get(..46).filter(|header| header.starts_with(b"PK\x01\x02")).ok_or_else(short)?;
            let [name, extra, comment] = [28, 30, 32].map(|at| usize::from(u16_at(header, at)));
            let text = rest.get(46..46 + name).ok_or_else(short)?;
            let fields = rest.get(46 + name..46 + name + extra).ok_or_else(short)?;
            let text = String::from_utf8_lossy(text).into_owned();
            let (packed, size) = (u32_at(header, 20), u32_at(header, 24));
            // Larger numbers are in a field of their own, in this order.
            let mut large = large_numbers(fields).into_iter();
            let mut number =
                |short: u32| if short == u32::MAX { large.next().flatten() } else { Some(short.into()) };
            let size = number(size);
            number(packed);
            let place = number(u32_at(header, 42)).zip(size).ok_or_else(short)?;
            if u16_at(header, 10) != 0 {
                return Err(format!("its entry `{text}` is compressed, which PyTorch's archives are not"));
            }
            let (_, inner) = text.split_once('/').unwrap_or(("", &text));
            entries.insert(inner.to_owned(), place);
            rest = rest.get(46 + name + extra + comment..).ok_or_else(short)?;
        }
        Ok(Self { reader, entries })
    }

    /// Returns whether there is an entry of this name.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// Reads a whole entry.
    ///
    /// # Errors
    /// A description of the problem if there is no such entry, it is too large or incomplete.
    pub(super) fn read(&mut self, name: &str) -> Result<Vec<u8>, String> {
        let &(_, size) = self.entries.get(name).ok_or_else(|| format!("it has no entry `{name}`"))?;
        if size > MAX_ENTRY {
            return Err(format!("its entry `{name}` has {size} bytes, more than {MAX_ENTRY}"));
        }
        self.read_part(name, 0, size).map_err(|problem| format!("its entry `{name}`: {problem}"))
    }

    /// Reads the bytes of an entry from an offset on.
    ///
    /// # Errors
    /// A description of the problem if the entry does not have these bytes.
    pub(super) fn read_part(&mut self, name: &str, offset: u64, length: u64) -> Result<Vec<u8>, String> {
        let &(start, size) = self.entries.get(name).ok_or("it does not exist")?;
        let fits = offset.checked_add(length).is_some_and(|end| end <= size);
        if !fits || length > MAX_ENTRY {
            return Err(format!("it has {size} bytes, not {length} from {offset} on"));
        }
        let header = read_at(&mut self.reader, start, 30)?;
        if !header.starts_with(b"PK\x03\x04") {
            return Err("its header is damaged".into());
        }
        let skipped = 30 + u64::from(u16_at(&header, 26)) + u64::from(u16_at(&header, 28));
        let at = start.checked_add(skipped).and_then(|at| at.checked_add(offset));
        let at = at.ok_or("its header is damaged")?;
        read_at(&mut self.reader, at, length)
    }
}

/// Returns the number of entries, and the size and position of their list.
fn directory<R: Read + Seek>(reader: &mut R) -> Result<(u64, u64, u64), String> {
    let length = reader.seek(SeekFrom::End(0)).map_err(|error| error.to_string())?;
    let tail = length.min(MAX_END);
    let bytes = read_at(reader, length - tail, tail)?;
    let none = || "it is no zip archive, or is incomplete".to_owned();
    let end = bytes.windows(4).rposition(|window| window == b"PK\x05\x06").ok_or_else(none)?;
    let record = bytes.get(end..end + 22).ok_or_else(none)?;
    let (count, size, offset) = (u16_at(record, 10), u32_at(record, 12), u32_at(record, 16));
    let locator = end.checked_sub(20).map(|at| &bytes[at..end]);
    match locator.filter(|locator| locator.starts_with(b"PK\x06\x07")) {
        Some(locator) => {
            let record = read_at(reader, u64_at(locator, 8), 56)?;
            let is_end = record.starts_with(b"PK\x06\x06");
            is_end.then(|| (u64_at(&record, 32), u64_at(&record, 40), u64_at(&record, 48))).ok_or_else(none)
        }
        None => Ok((count.into(), size.into(), offset.into())),
    }
}

/// Returns the numbers in the field of an entry for those of more than 32 bits.
fn large_numbers(mut fields: &[u8]) -> Vec<Option<u64>> {
    while fields.len() >= 4 {
        let (kind, length) = (u16_at(fields, 0), usize::from(u16_at(fields, 2)));
        let Some(data) = fields.get(4..4 + length) else { return Vec::new() };
        if kind == 1 {
            return data.chunks_exact(8).map(|number| Some(u64_at(number, 0))).collect();
        }
        fields = &fields[4 + length..];
    }
    Vec::new()
}

/// Reads bytes at a position of the file.
fn read_at<R: Read + Seek>(reader: &mut R, at: u64, length: u64) -> Result<Vec<u8>, String> {
    reader.seek(SeekFrom::Start(at)).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    reader.take(length).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    (bytes.len() as u64 == length).then_some(bytes).ok_or_else(|| "it is incomplete".into())
}

/// Returns the number of two bytes at a position, or 0 if there are fewer.
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|word| word.try_into().ok()).map_or(0, u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes)
}

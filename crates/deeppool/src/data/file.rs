//! Files of data sets, decompressed if they are gzipped.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use super::DataError;

/// The first bytes of every gzip file (RFC 1952).
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Maximum number of bytes that are read of anything but a regular file.
const MAX_BYTES: u64 = 256 << 20;

/// Reads a whole file. Of anything but a regular file, such as a device without end, at most 256
/// MiB are read.
///
/// # Errors
/// Those of [`std::fs::read`], and [`io::ErrorKind::InvalidData`] if something that is no regular
/// file has more than 256 MiB.
pub(super) fn read_whole(path: &Path) -> io::Result<Vec<u8>> {
    let metadata = std::fs::metadata(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::new(error.kind(), "no such file: check the path"),
        _ => error,
    })?;
    if metadata.is_file() {
        return std::fs::read(path);
    }
    let mut content = Vec::new();
    File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_BYTES {
        let problem = "not a regular file, and longer than 256 MiB";
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    Ok(content)
}

/// An open file of a data set, decompressed while it is read if it is gzipped.
pub(super) struct DataFile {
    path: PathBuf,
    content: Box<dyn Read>,
}

impl DataFile {
    /// Opens `name`, or `name.gz` if that does not exist, in a folder.
    ///
    /// # Errors
    /// [`DataError::NotAFolder`], [`DataError::MissingFile`], or [`DataError::Read`] if the file
    /// cannot be opened.
    pub(super) fn open(folder: &Path, name: &str) -> Result<Self, DataError> {
        if !folder.is_dir() {
            return Err(DataError::NotAFolder { path: folder.into() });
        }
        let plain = folder.join(name);
        for path in [plain.clone(), folder.join(format!("{name}.gz"))] {
            match File::open(&path).and_then(unpack) {
                Ok(content) => return Ok(Self { path, content }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(DataError::Read { path, error }),
            }
        }
        Err(DataError::MissingFile { path: plain })
    }

    /// Path of the file that was opened.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Closes the file and returns its path.
    pub(super) fn into_path(self) -> PathBuf {
        self.path
    }

    /// Reads the next bytes after decompression: at most the given number, and fewer at the end of
    /// the file. Memory is allocated only for the bytes that are read.
    ///
    /// # Errors
    /// [`DataError::Read`] if the file cannot be read or decompressed.
    pub(super) fn read_up_to(&mut self, bytes: u64) -> Result<Vec<u8>, DataError> {
        let mut read = Vec::new();
        match self.content.by_ref().take(bytes).read_to_end(&mut read) {
            Ok(_) => Ok(read),
            Err(error) => Err(DataError::Read { path: self.path.clone(), error }),
        }
    }
}

/// Decompresses a gzip file. It is recognised by its content, since browsers decompress downloads
/// without renaming them.
fn unpack(file: File) -> io::Result<Box<dyn Read>> {
    let mut file = BufReader::new(file);
    Ok(if file.fill_buf()?.starts_with(&GZIP_MAGIC) {
        Box::new(MultiGzDecoder::new(file))
    } else {
        Box::new(file)
    })
}

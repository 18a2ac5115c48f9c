//! Published traces and tables, if available in `shared/data/traces` beside the workspace.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;

/// Opens a file and decompresses it. Prints that the test is skipped if the file does not exist.
pub(crate) fn open(name: &str) -> Option<Box<dyn Read>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/traces").join(name);
    match File::open(&path) {
        Ok(file) if path.extension().is_some_and(|extension| extension == "gz") => {
            Some(Box::new(GzDecoder::new(file)))
        }
        Ok(file) => Some(Box::new(file)),
        Err(error) => {
            println!("SKIPPED: {}: {error}", path.display());
            None
        }
    }
}

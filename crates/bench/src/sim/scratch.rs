use super::error::SimBenchError;
use std::fs;
use std::path::PathBuf;

/// A folder for what the subjects read; it goes with the value.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// A folder of this process among the temporary files.
    pub(super) fn new() -> Result<Self, SimBenchError> {
        let path = std::env::temp_dir().join(format!("bentpipe-bench-{}", std::process::id()));
        match fs::create_dir(&path) {
            Ok(()) => Ok(Self(path)),
            Err(source) => Err(SimBenchError::Scratch { path, source }),
        }
    }

    /// Writes a file, and tells where it is.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<PathBuf, SimBenchError> {
        let path = self.0.join(name);
        match fs::write(&path, text) {
            Ok(()) => Ok(path),
            Err(source) => Err(SimBenchError::Scratch { path, source }),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is left to whoever tidies the temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

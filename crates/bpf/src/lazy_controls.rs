use crate::{Controls, LoadError};

/// The controls of somebody who may never need them: they are loaded when they are first wanted.
#[derive(Debug, Default)]
pub struct LazyControls(Option<Result<Controls, LoadError>>);

impl LazyControls {
    /// Loads them, unless they are loaded.
    ///
    /// # Errors
    /// As [`Controls::load`].
    pub fn load(&mut self) -> Result<&mut Controls, &LoadError> {
        if self.loaded().is_none() {
            self.0 = None;
        }
        let result = self.0.get_or_insert_with(Controls::load);
        result.as_mut().map_err(|error| &*error)
    }

    /// They, where they are loaded.
    pub fn loaded(&mut self) -> Option<&mut Controls> {
        self.0.as_mut()?.as_mut().ok()
    }

    /// Why they could not be loaded, where that was tried.
    pub fn failed(&self) -> Option<&LoadError> {
        self.0.as_ref()?.as_ref().err()
    }
}

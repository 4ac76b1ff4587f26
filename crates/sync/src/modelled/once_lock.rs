//! A value that is set once.

use std::fmt;

use crate::modelled::mutex::Mutex;
use crate::modelled::thread::step;

/// As `std::sync::OnceLock`.
pub struct OnceLock<T> {
    setting: Mutex<()>,
    value: std::sync::OnceLock<T>,
}

impl<T> OnceLock<T> {
    /// Without a value.
    pub fn new() -> Self {
        Self {
            setting: Mutex::new(()),
            value: std::sync::OnceLock::new(),
        }
    }

    /// The value, if it is set.
    pub fn get(&self) -> Option<&T> {
        step();
        self.value.get()
    }

    /// Sets the value, unless it is set.
    ///
    /// # Errors
    /// It is set: `value` comes back.
    pub fn set(&self, value: T) -> Result<(), T> {
        let _setting = self.setting.lock();
        self.value.set(value)
    }

    /// The value, which `init` makes if it is not set.
    pub fn get_or_init(&self, init: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.get() {
            return value;
        }
        let _setting = self.setting.lock();
        self.value.get_or_init(init)
    }

    /// The value, which no other thread can reach.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.value.get_mut()
    }

    /// The value.
    pub fn into_inner(self) -> Option<T> {
        self.value.into_inner()
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl<T> From<T> for OnceLock<T> {
    fn from(value: T) -> Self {
        Self {
            setting: Mutex::new(()),
            value: value.into(),
        }
    }
}

//! Parsing mount options.

use super::{MountOptions, option_table};
use crate::types::error::{Error, Result};

impl MountOptions {
    /// Parses a comma list, later options winning over earlier ones.
    ///
    /// # Errors
    /// [`Error::BadOption`] names the option and what is wrong with it.
    pub fn parse(list: &str) -> Result<Self> {
        let mut options = Self::default();
        for item in list
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty())
        {
            options.apply(item)?;
        }
        Ok(options)
    }

    /// Applies one option, `name` or `name=value`.
    ///
    /// # Errors
    /// As [`MountOptions::parse`].
    pub fn apply(&mut self, item: &str) -> Result<()> {
        option_table::apply(self, item).map_err(|why| Error::BadOption(format!("'{item}': {why}")))
    }

    /// Returns whether [`MountOptions::parse`] knows the option `name` (without value), even if
    /// only to refuse it. Front ends use it to tell their own options from these.
    pub fn is_known(name: &str) -> bool {
        option_table::is_known(name)
    }
}

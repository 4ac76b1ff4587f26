//! Values that each thread of the model checker has for itself.

use std::cell::{Cell, RefCell};

use shuttle::thread::{AccessError, LocalKey};

/// As `std::thread::LocalKey`.
pub struct Local<T: 'static>(#[doc(hidden)] pub &'static LocalKey<T>);

impl<T: 'static> Local<T> {
    /// Runs `work` with the value of this thread.
    pub fn with<R>(&'static self, work: impl FnOnce(&T) -> R) -> R {
        self.0.with(work)
    }

    /// The same, unless the thread is at its end.
    ///
    /// # Errors
    /// The value is gone.
    pub fn try_with<R>(&'static self, work: impl FnOnce(&T) -> R) -> Result<R, AccessError> {
        self.0.try_with(work)
    }
}

impl<T: Copy + 'static> Local<Cell<T>> {
    /// The value.
    pub fn get(&'static self) -> T {
        self.with(Cell::get)
    }
}

impl<T: 'static> Local<Cell<T>> {
    /// Sets the value.
    pub fn set(&'static self, value: T) {
        self.with(|cell| cell.set(value));
    }

    /// Exchanges the value.
    pub fn replace(&'static self, value: T) -> T {
        self.with(|cell| cell.replace(value))
    }
}

impl<T: 'static> Local<RefCell<T>> {
    /// Runs `work` with the value.
    pub fn with_borrow<R>(&'static self, work: impl FnOnce(&T) -> R) -> R {
        self.with(|cell| work(&cell.borrow()))
    }

    /// Runs `work` with the value, which it may change.
    pub fn with_borrow_mut<R>(&'static self, work: impl FnOnce(&mut T) -> R) -> R {
        self.with(|cell| work(&mut cell.borrow_mut()))
    }
}

/// As `std::thread_local`.
#[macro_export]
macro_rules! thread_local {
    () => {};
    ($(#[$attr:meta])* $vis:vis static $name:ident: $t:ty = const { $init:expr }; $($rest:tt)*) => {
        $crate::thread_local!($(#[$attr])* $vis static $name: $t = $init; $($rest)*);
    };
    ($(#[$attr:meta])* $vis:vis static $name:ident: $t:ty = const { $init:expr }) => {
        $crate::thread_local!($(#[$attr])* $vis static $name: $t = $init;);
    };
    ($(#[$attr:meta])* $vis:vis static $name:ident: $t:ty = $init:expr; $($rest:tt)*) => {
        $(#[$attr])*
        $vis static $name: $crate::Local<$t> = {
            $crate::shuttle::thread_local!(static KEY: $t = $init);
            $crate::Local(&KEY)
        };
        $crate::thread_local!($($rest)*);
    };
    ($(#[$attr:meta])* $vis:vis static $name:ident: $t:ty = $init:expr) => {
        $crate::thread_local!($(#[$attr])* $vis static $name: $t = $init;);
    };
}

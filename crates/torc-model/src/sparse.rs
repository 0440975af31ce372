//! Values that are mostly their default: a workflow may have a million jobs, and few of them set
//! the rarer things.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// Has a default that can be borrowed.
pub trait StaticDefault: Default + PartialEq + 'static {
    /// The default.
    fn plain() -> &'static Self;
}

/// Implements [`StaticDefault`] for types that have a default.
#[macro_export]
macro_rules! plain {
    ($($name:ty),*) => {$(
        impl $crate::sparse::StaticDefault for $name {
            fn plain() -> &'static Self {
                static PLAIN: std::sync::LazyLock<$name> = std::sync::LazyLock::new(Default::default);
                &PLAIN
            }
        }
    )*};
}

/// A value that takes no memory of its own while it is the default.
#[derive(Clone, Default)]
pub struct Sparse<T>(Option<Box<T>>);

impl<T: StaticDefault> Sparse<T> {
    /// The value itself.
    pub fn into_inner(self) -> T {
        self.0.map_or_else(T::default, |value| *value)
    }

    /// Changes the value; it takes memory afterwards only if it is not the default.
    pub fn edit<R>(&mut self, change: impl FnOnce(&mut T) -> R) -> R {
        match &mut self.0 {
            Some(value) => {
                let result = change(value);
                if **value == *T::plain() {
                    self.0 = None;
                }
                result
            }
            None => {
                let mut value = T::default();
                let result = change(&mut value);
                *self = Self::from(value);
                result
            }
        }
    }
}

impl<T: StaticDefault> From<T> for Sparse<T> {
    fn from(value: T) -> Self {
        Self((value != *T::plain()).then(|| Box::new(value)))
    }
}

impl<T: StaticDefault> Deref for Sparse<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.0 {
            Some(value) => value,
            None => T::plain(),
        }
    }
}

impl<T: StaticDefault> DerefMut for Sparse<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }
}

impl<T: StaticDefault> PartialEq for Sparse<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: StaticDefault + fmt::Debug> fmt::Debug for Sparse<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, PartialEq, Default, Debug)]
    struct Rare(u8);
    crate::plain!(Rare);

    #[test]
    fn a_default_is_the_same_with_and_without_memory() {
        let mut written = Sparse::from(Rare(0));
        assert!(written.0.is_none());
        written.0 = Some(Box::new(Rare(0)));
        assert_eq!(written, Sparse::default());
        written.0 = None;
        assert_eq!(written.into_inner(), Rare(0));
        let mut changed = Sparse::<Rare>::default();
        changed.deref_mut().0 = 7;
        assert_eq!((changed.deref().0, changed == Sparse::from(Rare(7))), (7, true));
        assert_eq!(changed.edit(|rare| std::mem::replace(&mut rare.0, 0)), 7);
        assert!(changed.0.is_none());
        changed.edit(|_| ());
        assert!(changed.0.is_none());
        changed.edit(|rare| rare.0 = 8);
        assert_eq!(changed, Sparse::from(Rare(8)));
    }
}

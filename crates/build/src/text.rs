//! Names and targets of links, one after the other in one buffer.

/// The offset of a string in the buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct TextId(u32);

impl TextId {
    /// As a part of another number.
    pub(crate) fn raw(self) -> u32 {
        self.0
    }

    /// From [`TextId::raw`].
    pub(crate) fn from_raw(raw: u32) -> Self {
        Self(raw)
    }
}

/// Strings of at most 64 KiB, at most 4 GiB in all.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    bytes: Vec<u8>,
}

impl Texts {
    /// Keeps `text`; `None` where there is no room.
    pub(crate) fn push(&mut self, text: &[u8]) -> Option<TextId> {
        let at = u32::try_from(self.bytes.len()).ok()?;
        let len = u16::try_from(text.len()).ok()?;
        self.bytes.extend_from_slice(&len.to_le_bytes());
        self.bytes.extend_from_slice(text);
        Some(TextId(at))
    }

    /// The string at `id`, which [`Texts::push`] gave.
    pub(crate) fn get(&self, id: TextId) -> &[u8] {
        let text = &self.bytes[id.0 as usize..];
        let len = usize::from(u16::from_le_bytes([text[0], text[1]]));
        &text[2..2 + len]
    }
}

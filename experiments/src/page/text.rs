//! Text in HTML.

use std::fmt::{self, Display, Formatter, Write};

/// Text that is displayed with the characters escaped that have a meaning in HTML elements and
/// attributes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#x27;")?,
                '/' => f.write_str("&#x2f;")?,
                _ => f.write_char(character)?,
            }
        }
        Ok(())
    }
}

/// Converts the items to HTML by `html`, and joins them with a separator.
pub(super) fn joined<T>(
    items: impl IntoIterator<Item = T>,
    separator: &str,
    html: impl FnMut(T) -> String,
) -> String {
    items.into_iter().map(html).collect::<Vec<_>>().join(separator)
}

#[cfg(test)]
mod tests {
    use super::Escaped;

    #[test]
    fn escaped_text_has_no_markup() {
        let text = Escaped("a < b & \"c\" > 'd' / e").to_string();
        assert_eq!(text, "a &lt; b &amp; &quot;c&quot; &gt; &#x27;d&#x27; &#x2f; e");
    }
}

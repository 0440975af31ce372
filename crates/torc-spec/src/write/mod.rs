//! Writers: the canonical spec in any format, so that reading it back gives the same spec.

mod json5;
mod kdl;
mod yaml;

use crate::source::Format;
use crate::spec::Spec;

impl Spec {
    /// The canonical spec as text.
    pub fn write(&self, format: Format) -> String {
        let value = self.to_value();
        match format {
            Format::Yaml => yaml::write(&value),
            Format::Json => format!("{value:#}\n"),
            Format::Json5 => json5::write(&value),
            Format::Kdl => kdl::write(&value),
        }
    }
}

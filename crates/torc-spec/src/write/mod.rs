//! Writers: the canonical spec in any format, so that reading it back gives the same spec.

mod json5;
mod kdl;
mod yaml;

use crate::source::SpecFormat;
use crate::spec::Spec;

impl Spec {
    /// The canonical spec as text.
    pub fn write(&self, format: SpecFormat) -> String {
        let value = self.to_value();
        match format {
            SpecFormat::Yaml => yaml::write(&value),
            SpecFormat::Json => format!("{value:#}\n"),
            SpecFormat::Json5 => json5::write(&value),
            SpecFormat::Kdl => kdl::write(&value),
        }
    }
}

//! What must hold for every text, whoever wrote it: the fuzz targets and a test of `torc-spec` ask
//! it of each input.

use torc_spec::{Severity, Source, SpecFormat};

/// Larger plans are right or wrong for the same reasons, and would only slow the search.
const MAX_JOBS: usize = 2_000;
/// A mistake is told in a few lines, however large the text around it.
const MAX_MESSAGE: usize = 2_000;

/// Reads, plans, draws and writes a text. Panics when the program would lie or break:
///
/// - an error without a place, or a message as long as the file;
/// - a spec that reads back as another one from any of the four formats, or makes another plan.
pub fn hold(bytes: &[u8], format: SpecFormat) {
    let parsed = match torc_spec::parse(&Source::new("input", bytes, format)) {
        Ok(parsed) => parsed,
        Err(errors) => {
            assert!(errors.has_errors(), "refused without an error");
            for error in errors.iter().filter(|found| found.severity == Severity::Error) {
                assert!(error.place.is_some() && error.message.len() < MAX_MESSAGE, "{error:?}");
            }
            let _ = errors.render(false);
            return;
        }
    };
    let spec = parsed.spec;
    let planned = spec.check(Default::default());
    if let Ok(checked) = &planned {
        if checked.plan.jobs.len() > MAX_JOBS {
            return;
        }
        let _ = (checked.analysis.to_text(), checked.analysis.graph.to_svg());
        let _ = (checked.analysis.graph.to_dot(), checked.analysis.graph.to_mermaid());
    }
    for format in SpecFormat::ALL {
        let text = spec.write(format);
        let again = torc_spec::parse(&Source::new("written", text.as_bytes(), format));
        let again = again
            .unwrap_or_else(|errors| panic!("{format} cannot be read back: {errors}\n{text}"))
            .spec;
        assert_eq!(again, spec, "{format} reads back as another spec:\n{text}");
        match (&planned, again.plan()) {
            (Ok(checked), Ok((plan, _))) => {
                assert_eq!(plan, checked.plan, "{format} makes another plan:\n{text}")
            }
            (Err(_), Err(_)) => {}
            (Ok(_), Err(errors)) => panic!("{format} cannot be planned: {errors}\n{text}"),
            (Err(_), Ok(_)) => panic!("{format} can be planned, the original cannot:\n{text}"),
        }
    }
}

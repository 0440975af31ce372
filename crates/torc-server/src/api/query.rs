//! The query strings of lists.

use super::error::ApiError;
use torc_spec::nearest;

/// Defines the query of a list: its own filters and what all lists share.
macro_rules! list_query {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, serde::Deserialize, utoipa::IntoParams)]
        #[serde(default, deny_unknown_fields)]
        #[into_params(parameter_in = Query)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
            /// Rows to skip.
            #[param(minimum = 0)]
            pub offset: Option<i64>,
            /// Rows to give at most; 1000 unless given.
            #[param(minimum = 1, maximum = 10000)]
            pub limit: Option<i64>,
            /// Order of the rows; the message of a refusal lists the keys.
            pub sort_by: Option<String>,
            /// Last first.
            pub reverse_sort: Option<bool>,
        }

        impl $name {
            /// Which part of the list.
            pub fn paging(&self) -> Result<crate::store::read::Paging, crate::api::error::ApiError> {
                let (offset, limit) = crate::api::error::check_paging(self.offset, self.limit)?;
                Ok(crate::store::read::Paging {
                    offset,
                    limit,
                    sort_by: self.sort_by.clone(),
                    reverse: self.reverse_sort.unwrap_or_default(),
                })
            }
        }
    };
}
pub(super) use list_query;

/// Reads one of our words, or lists the ones there are.
pub fn word<T: Copy>(
    field: &str,
    text: &str,
    parse: impl Fn(&str) -> Option<T>,
    all: &[T],
    name: impl Fn(T) -> &'static str,
) -> Result<T, ApiError> {
    parse(text).ok_or_else(|| {
        let known: Vec<_> = all.iter().map(|word| name(*word)).collect();
        let refusal = ApiError::bad_query(
            field,
            format!("unknown {field} `{text}` (known: {})", known.join(", ")),
        );
        match nearest(text, known) {
            Some(meant) => refusal.hint(format!("did you mean `{meant}`?")),
            None => refusal,
        }
    })
}

//! JSON that passes through: neither parsed nor built by the client, on any side.

use std::error::Error;

use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

type Fault = Box<dyn Error + Sync + Send>;

/// JSON text on its way to a `jsonb` parameter.
#[derive(Debug, Clone)]
pub struct Text(pub String);

impl ToSql for Text {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Fault> {
        // The version of the binary format, then text.
        out.extend_from_slice(&[1]);
        out.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::JSONB
    }

    to_sql_checked!();
}

/// JSON text as it came, of a `jsonb` or a `text` column.
#[derive(Debug, Clone, Copy)]
pub struct Raw<'a>(pub &'a [u8]);

impl<'a> FromSql<'a> for Raw<'a> {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Raw<'a>, Fault> {
        match *kind {
            Type::JSONB => Ok(Raw(raw.get(1..).unwrap_or_default())),
            _ => Ok(Raw(raw)),
        }
    }

    fn accepts(kind: &Type) -> bool {
        matches!(*kind, Type::JSONB | Type::TEXT)
    }
}

//! Values that pass through: a `jsonb` is never looked into, an instant is a number.

mod table;

pub use table::Table;

use pgrx::callconv::{Arg, ArgAbi, BoxRet, FcInfo};
use pgrx::datum::{Datum, UnboxDatum};
use pgrx::nullable::Nullable;
use pgrx::pgrx_sql_entity_graph::metadata::{
    ArgumentError, ReturnsError, ReturnsRef, SqlMappingRef, SqlTranslatable, TypeOrigin,
};
use pgrx::{FromDatum, IntoDatum, direct_function_call, direct_function_call_as_datum, pg_sys};
use std::ffi::{CStr, CString};

/// A `jsonb` value as the server holds it.
#[derive(Clone, Copy, Debug)]
pub struct Json(pub pg_sys::Datum);

impl Json {
    /// Makes a `jsonb` of JSON text; the server reports what it cannot hold (22P02, 22P05).
    pub fn parse(text: &str) -> Option<Json> {
        let text = CString::new(text).ok()?;
        // SAFETY: jsonb_in takes one C string, which it copies before it returns.
        unsafe { direct_function_call_as_datum(pg_sys::jsonb_in, &[text.as_c_str().into_datum()]) }
            .map(Json)
    }

    /// The JSON text of the value.
    pub fn text(self) -> String {
        // SAFETY: self is a jsonb datum, jsonb_out detoasts it and returns a palloc'd C string.
        let text = unsafe { direct_function_call::<&CStr>(pg_sys::jsonb_out, &[Some(self.0)]) };
        text.map(|text| text.to_string_lossy().into_owned())
            .unwrap_or_default()
    }

    /// Bytes of the value before compression, without reading it from its toast table.
    pub fn size(self) -> usize {
        // SAFETY: self is a varlena datum, toasted or not.
        unsafe { pg_sys::toast_raw_datum_size(self.0) }
    }
}

/// A moment, in microseconds since 2000 as the server counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(pub i64);

impl Instant {
    pub const INFINITY: Instant = Instant(i64::MAX);

    /// The server's clock, read once per call: expiry is never judged by a client's clock.
    pub fn now() -> Instant {
        // SAFETY: reads the system clock, no arguments, cannot fail.
        Instant(unsafe { pg_sys::GetCurrentTimestamp() })
    }

    /// When this server started.
    pub fn server_start() -> Instant {
        // SAFETY: PgStartTime is set once by the postmaster before any backend exists.
        Instant(unsafe { pg_sys::PgStartTime })
    }

    pub fn plus_micros(self, micros: i64) -> Instant {
        Instant(self.0.saturating_add(micros))
    }

    /// Reads a moment as the server reads `timestamptz` text; bad text is the server's 22007.
    pub fn parse(text: &str) -> Option<Instant> {
        let text = CString::new(text).ok()?;
        // SAFETY: timestamptz_in takes a C string, a type oid it ignores, and a typmod.
        unsafe {
            direct_function_call::<Instant>(
                pg_sys::timestamptz_in,
                &[
                    text.as_c_str().into_datum(),
                    pg_sys::InvalidOid.into_datum(),
                    (-1i32).into_datum(),
                ],
            )
        }
    }
}

macro_rules! pass_through {
    ($type:ident, $sql:literal, $oid:ident, $wrap:expr, $own:expr, $unwrap:expr) => {
        impl IntoDatum for $type {
            fn into_datum(self) -> Option<pg_sys::Datum> {
                Some($unwrap(self))
            }

            fn type_oid() -> pg_sys::Oid {
                pg_sys::$oid
            }
        }

        impl FromDatum for $type {
            unsafe fn from_polymorphic_datum(
                datum: pg_sys::Datum,
                is_null: bool,
                _: pg_sys::Oid,
            ) -> Option<Self> {
                (!is_null).then(|| $wrap(datum))
            }
        }

        // SAFETY: an element of an array declared to hold this type; copied, for the array may be freed.
        unsafe impl UnboxDatum for $type {
            type As<'src> = $type;
            unsafe fn unbox<'src>(datum: Datum<'src>) -> $type
            where
                Self: 'src,
            {
                $own(datum.sans_lifetime())
            }
        }

        // SAFETY: as above; the argument lives as long as the call.
        unsafe impl<'fcx> ArgAbi<'fcx> for $type {
            unsafe fn unbox_arg_unchecked(arg: Arg<'_, 'fcx>) -> Self {
                // SAFETY: the caller promises an argument of this type.
                unsafe { arg.unbox_arg_using_from_datum() }.unwrap_or($wrap(pg_sys::Datum::from(0)))
            }

            unsafe fn unbox_nullable_arg(arg: Arg<'_, 'fcx>) -> Nullable<Self> {
                // SAFETY: the caller promises an argument of this type.
                unsafe { arg.unbox_arg_using_from_datum() }.into()
            }
        }

        // SAFETY: the datum is returned as it is, in a function declared to return this type.
        unsafe impl BoxRet for $type {
            unsafe fn box_into<'fcx>(self, fcinfo: &mut FcInfo<'fcx>) -> Datum<'fcx> {
                // SAFETY: see above.
                unsafe { fcinfo.return_raw_datum($unwrap(self)) }
            }
        }

        // SAFETY: names the SQL type whose datums the Rust type wraps.
        unsafe impl SqlTranslatable for $type {
            const TYPE_IDENT: &'static str = pgrx::pgrx_resolved_type!($type);
            const TYPE_ORIGIN: TypeOrigin = TypeOrigin::External;
            const ARGUMENT_SQL: Result<SqlMappingRef, ArgumentError> =
                Ok(SqlMappingRef::literal($sql));
            const RETURN_SQL: Result<ReturnsRef, ReturnsError> =
                Ok(ReturnsRef::One(SqlMappingRef::literal($sql)));
        }
    };
}

pass_through!(
    Json,
    "jsonb",
    JSONBOID,
    Json,
    // SAFETY: a varlena datum; the copy lives in the memory context of the call.
    |datum: pg_sys::Datum| Json(
        unsafe { pg_sys::pg_detoast_datum_copy(datum.cast_mut_ptr()) }.into()
    ),
    |json: Json| json.0
);
pass_through!(
    Instant,
    "timestamptz",
    TIMESTAMPTZOID,
    |datum: pg_sys::Datum| Instant(datum.value() as i64),
    |datum: pg_sys::Datum| Instant(datum.value() as i64),
    |instant: Instant| pg_sys::Datum::from(instant.0)
);

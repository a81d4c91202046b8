//! The only room that prepares and keeps statements, and that talks to SPI.
//!
//! Every statement of [`rows`] and [`execute`] runs with a snapshot of its own, younger than whatever
//! lock was taken before it, and assigns no transaction id unless it writes: a poll that finds nothing
//! leaves no trace. Plans are generic and kept; while [`steady`]'s value lives they can only be made of
//! ordered index scans and nested loops, whatever statistics an empty table left behind.

mod steady;

pub use steady::{bound_idle_time, steady};

use crate::datum::{Instant, Json};
use crate::error::{Error, Result};
use pgrx::datum::Uuid;
use pgrx::{FromDatum, IntoDatum, pg_sys};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CString;

thread_local! {
    // Keyed by the place of the statement's text: a statement is a constant of the program.
    // Plans live in the server's cache context for the whole session, so nothing is to be freed.
    static KEPT: RefCell<HashMap<(usize, usize), pg_sys::SPIPlanPtr>> = RefCell::new(HashMap::new());
}

/// An argument of a statement with its type.
pub struct Arg {
    datum: Option<pg_sys::Datum>,
    oid: pg_sys::Oid,
}

/// Makes an argument; the type of the parameter follows from the type of the value.
pub fn arg<T: IntoDatum>(value: T) -> Arg {
    Arg {
        oid: T::type_oid(),
        datum: value.into_datum(),
    }
}

/// Makes an array argument: one element per row.
pub fn column<M, T: IntoDatum>(rows: &[M], value: impl Fn(&M) -> T) -> Arg {
    arg(rows.iter().map(value).collect::<Vec<T>>())
}

/// One row of a result, read by column number from 1.
pub struct Row {
    tuple: pg_sys::HeapTuple,
    description: pg_sys::TupleDesc,
}

impl Row {
    fn datum(&self, column: i32) -> Option<pg_sys::Datum> {
        let mut is_null = false;
        // SAFETY: tuple and description belong to the SPI result that is open while a Row lives.
        let datum =
            unsafe { pg_sys::SPI_getbinval(self.tuple, self.description, column, &mut is_null) };
        (!is_null).then_some(datum)
    }

    /// The value of a column that may be null.
    pub fn get<T: FromDatum>(&self, column: i32) -> Option<T> {
        // SAFETY: each statement stands beside the code that reads it, with the types it selects.
        self.datum(column)
            .and_then(|datum| unsafe { T::from_datum(datum, false) })
    }

    /// The value of a column that the statement never leaves null.
    pub fn must<T: FromDatum + Default>(&self, column: i32) -> T {
        self.get(column).unwrap_or_default()
    }

    pub fn id(&self, column: i32) -> Uuid {
        self.get(column).unwrap_or(Uuid::from_bytes([0; 16]))
    }

    pub fn instant(&self, column: i32) -> Instant {
        self.get(column).unwrap_or(Instant(0))
    }

    /// Bytes of a jsonb value before compression; it is not read from its toast table.
    pub fn size(&self, column: i32) -> i64 {
        self.datum(column)
            .map_or(0, |datum| Json(datum).size() as i64)
    }

    /// A jsonb value, copied to the caller's memory context, where it outlives the statement.
    pub fn json(&self, column: i32) -> Option<Json> {
        self.datum(column).map(|datum| {
            // SAFETY: inside SPI; copies a varlena to the context that was current at SPI_connect.
            Json(unsafe { pg_sys::SPI_datumTransfer(datum, false, -1) })
        })
    }
}

/// Which snapshot a statement sees.
#[derive(Clone, Copy, PartialEq)]
enum View {
    /// One of its own, as of now; may write and lock.
    Fresh,
    /// The caller's; reads only.
    Callers,
    /// The newest, even where the transaction's own is fixed; reads only.
    Latest,
}

/// Runs a statement that sees everything committed before it; it may write and lock.
pub fn rows<T>(sql: &'static str, args: &[Arg], read: impl FnMut(&Row) -> T) -> Result<Vec<T>> {
    run(sql, args, View::Fresh, read)
}

/// Like [`rows`], for a statement whose rows nobody needs; returns how many it touched.
pub fn execute(sql: &'static str, args: &[Arg]) -> Result<u64> {
    let mut session = Session::open()?;
    session.run(sql, args, View::Fresh)?;
    Ok(session.processed)
}

/// Reads with the snapshot of the calling statement, for functions marked STABLE.
pub fn look<T>(sql: &'static str, args: &[Arg], read: impl FnMut(&Row) -> T) -> Result<Vec<T>> {
    run(sql, args, View::Callers, read)
}

/// Reads what is committed now, above READ COMMITTED too: only for what a lock just taken protects.
pub fn latest<T>(sql: &'static str, args: &[Arg], read: impl FnMut(&Row) -> T) -> Result<Vec<T>> {
    run(sql, args, View::Latest, read)
}

fn run<T>(
    sql: &'static str,
    args: &[Arg],
    view: View,
    mut read: impl FnMut(&Row) -> T,
) -> Result<Vec<T>> {
    let mut session = Session::open()?;
    session.run(sql, args, view)?;
    // SAFETY: SPI_tuptable is this session's result, valid until SPI_finish; null for no result.
    let found = unsafe {
        if pg_sys::SPI_tuptable.is_null() {
            return Ok(Vec::new());
        }
        let table = &*pg_sys::SPI_tuptable;
        (0..session.processed as usize)
            .map(|i| {
                read(&Row {
                    tuple: *table.vals.add(i),
                    description: table.tupdesc,
                })
            })
            .collect()
    };
    Ok(found)
}

/// An open SPI connection; an error closes it with the transaction.
struct Session {
    processed: u64,
}

impl Session {
    fn open() -> Result<Session> {
        // SAFETY: paired with SPI_finish in drop, or with the abort of the transaction.
        match unsafe { pg_sys::SPI_connect() } {
            code if code == pg_sys::SPI_OK_CONNECT as i32 => Ok(Session { processed: 0 }),
            code => Err(Error::Bug(format!("SPI_connect answered {code}"))),
        }
    }

    fn run(&mut self, sql: &'static str, args: &[Arg], view: View) -> Result<()> {
        let plan = kept(sql, args)?;
        let mut values: Vec<pg_sys::Datum> = args
            .iter()
            .map(|arg| arg.datum.unwrap_or(pg_sys::Datum::from(0)))
            .collect();
        let nulls: Vec<core::ffi::c_char> = args
            .iter()
            .map(|arg| if arg.datum.is_some() { b' ' } else { b'n' } as _)
            .collect();
        let code = execute_plan(plan, &mut values, &nulls, view);
        if code < 0 {
            return Err(Error::Bug(format!(
                "statement failed with SPI code {code}: {sql}"
            )));
        }
        // SAFETY: set by the call above.
        self.processed = unsafe { pg_sys::SPI_processed };
        Ok(())
    }
}

fn execute_plan(
    plan: pg_sys::SPIPlanPtr,
    values: &mut [pg_sys::Datum],
    nulls: &[core::ffi::c_char],
    view: View,
) -> i32 {
    let (values, nulls) = (values.as_mut_ptr(), nulls.as_ptr());
    // SAFETY: plan is kept for the session; values and nulls have one entry per parameter.
    unsafe {
        if view != View::Latest {
            return pg_sys::SPI_execute_plan(plan, values, nulls, view == View::Callers, 0);
        }
        pg_sys::CommandCounterIncrement();
        let snapshot = pg_sys::GetLatestSnapshot();
        let none = core::ptr::null_mut();
        pg_sys::SPI_execute_snapshot(plan, values, nulls, snapshot, none, true, true, 0)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: closes the connection opened in open().
            unsafe { pg_sys::SPI_finish() };
        }
    }
}

fn kept(sql: &'static str, args: &[Arg]) -> Result<pg_sys::SPIPlanPtr> {
    let key = (sql.as_ptr() as usize, sql.len());
    if let Some(plan) = KEPT.with_borrow(|kept| kept.get(&key).copied()) {
        return Ok(plan);
    }
    let text = CString::new(sql).map_err(|_| Error::Bug("a statement holds a NUL".into()))?;
    let mut types: Vec<pg_sys::Oid> = args.iter().map(|arg| arg.oid).collect();
    // SAFETY: text and types outlive the call, which copies them; keepplan moves the plan to the
    // session's memory.
    let plan = unsafe {
        let plan = pg_sys::SPI_prepare_cursor(
            text.as_ptr(),
            types.len() as i32,
            types.as_mut_ptr(),
            pg_sys::CURSOR_OPT_GENERIC_PLAN as i32,
        );
        if plan.is_null() || pg_sys::SPI_keepplan(plan) != 0 {
            return Err(Error::Bug(format!("cannot prepare: {sql}")));
        }
        plan
    };
    KEPT.with_borrow_mut(|kept| kept.insert(key, plan));
    Ok(plan)
}

//! The rows of a result, handed over all at once: the server keeps them in a tuplestore either way, and
//! row by row each would be made into a composite value first and taken apart again.

use pgrx::callconv::{CallCx, RetAbi};
use pgrx::pgrx_sql_entity_graph::metadata::{
    ArgumentError, ReturnsError, ReturnsRef, SqlMappingRef, SqlTranslatable, TypeOrigin,
};
use pgrx::{IntoDatum, PgMemoryContexts, pg_sys};

/// The rows of a result. What they are called stands in the SQL declaration of the function.
pub struct Table<T>(Box<dyn Iterator<Item = T>>);

impl<T: 'static> Table<T> {
    pub fn new(rows: impl IntoIterator<Item = T, IntoIter: 'static> + 'static) -> Table<T> {
        Table(Box::new(rows.into_iter()))
    }
}

/// A row whose columns are put down side by side.
pub trait Columns {
    fn put(self, values: &mut Vec<pg_sys::Datum>, nulls: &mut Vec<bool>);
}

fn put_one(value: impl IntoDatum, values: &mut Vec<pg_sys::Datum>, nulls: &mut Vec<bool>) {
    let datum = value.into_datum();
    nulls.push(datum.is_none());
    values.push(datum.unwrap_or(pg_sys::Datum::from(0)));
}

macro_rules! columns {
    ($($column:ident)+) => {
        impl<$($column: IntoDatum),+> Columns for ($($column,)+) {
            #[allow(non_snake_case)]
            fn put(self, values: &mut Vec<pg_sys::Datum>, nulls: &mut Vec<bool>) {
                let ($($column,)+) = self;
                $(put_one($column, values, nulls);)+
            }
        }
    };
}

macro_rules! columns_up_to {
    ($first:ident) => { columns!($first); };
    ($first:ident $($rest:ident)+) => {
        columns!($first $($rest)+);
        columns_up_to!($($rest)+);
    };
}

columns_up_to!(A B C D E F G H I J K L M N O P Q R S U V W X Y Z AA AB AC AD AE AF AG AH);

/// Puts all rows into a tuplestore of the statement that called.
///
/// # Safety
/// `fcinfo` is the one of a call whose function is declared to return these columns.
unsafe fn hand_over<T: Columns>(fcinfo: pg_sys::FunctionCallInfo, rows: impl Iterator<Item = T>) {
    // SAFETY: as promised by the caller; the store and its description are made in the context of the
    // whole query, which is where the server expects them.
    unsafe {
        let result = (*fcinfo).resultinfo.cast::<pg_sys::ReturnSetInfo>();
        let materialize = pg_sys::SetFunctionReturnMode::SFRM_Materialize;
        if result.is_null()
            || !pgrx::is_a(result.cast(), pg_sys::NodeTag::T_ReturnSetInfo)
            || (*result).allowedModes as u32 & materialize == 0
        {
            pgrx::error!("a set of rows is returned where the caller cannot take one");
        }
        let random = (*result).allowedModes as u32
            & pg_sys::SetFunctionReturnMode::SFRM_Materialize_Random
            != 0;
        let mut of_query = PgMemoryContexts::For((*(*result).econtext).ecxt_per_query_memory);
        let (store, description) = of_query.switch_to(|_| {
            let mut description = core::ptr::null_mut();
            pg_sys::get_call_result_type(fcinfo, core::ptr::null_mut(), &mut description);
            let store = pg_sys::tuplestore_begin_heap(random, false, pg_sys::work_mem);
            (store, description)
        });
        if description.is_null() {
            pgrx::error!("the function is declared with a single column, which is no row");
        }
        (*result).returnMode = materialize;
        (*result).setResult = store;
        (*result).setDesc = description;
        let (mut values, mut nulls) = (Vec::new(), Vec::new());
        for row in rows {
            values.clear();
            nulls.clear();
            row.put(&mut values, &mut nulls);
            // The declaration of the function is in a script, which could be of another version.
            if values.len() != (*description).natts as usize {
                pgrx::error!(
                    "the library returns {} columns, the function is declared with {}",
                    values.len(),
                    (*description).natts
                );
            }
            let (values, nulls) = (values.as_mut_ptr(), nulls.as_mut_ptr());
            pg_sys::tuplestore_putvalues(store, description, values, nulls);
        }
        (*fcinfo).isnull = true;
    }
}

// SAFETY: the rows are handed over while the call that made them still runs.
unsafe impl<T: Columns> RetAbi for Table<T> {
    // Nothing is returned row by row.
    type Item = ();
    type Ret = Table<T>;

    unsafe fn check_fcinfo_and_prepare(_: pg_sys::FunctionCallInfo) -> CallCx {
        // SAFETY: the context that is current in a call.
        CallCx::WrappedFn(unsafe { pg_sys::CurrentMemoryContext })
    }

    fn to_ret(self) -> Table<T> {
        self
    }

    unsafe fn box_ret_in_fcinfo(fcinfo: pg_sys::FunctionCallInfo, ret: Table<T>) -> pg_sys::Datum {
        // SAFETY: as promised by the caller.
        unsafe { hand_over(fcinfo, ret.0) };
        pg_sys::Datum::from(0)
    }

    unsafe fn move_into_fcinfo_fcx(self, _: pg_sys::FunctionCallInfo) {}

    unsafe fn fill_fcinfo_fcx(&self, _: pg_sys::FunctionCallInfo) {}
}

// SAFETY: used only by functions whose SQL is written by hand.
unsafe impl<T> SqlTranslatable for Table<T> {
    const TYPE_IDENT: &'static str = pgrx::pgrx_resolved_type!(Table<T>);
    const TYPE_ORIGIN: TypeOrigin = TypeOrigin::External;
    const ARGUMENT_SQL: Result<SqlMappingRef, ArgumentError> = Err(ArgumentError::Table);
    const RETURN_SQL: Result<ReturnsRef, ReturnsError> =
        Ok(ReturnsRef::SetOf(SqlMappingRef::literal("record")));
}

//! Nobody drops the extension with undelivered messages in it by mistake.

use crate::config;
use crate::error::{Error, Result};
use crate::plan;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use pgrx::{PgList, pg_sys};
use std::ffi::CStr;

const UNDELIVERED: &str = "
SELECT 'outbox' WHERE EXISTS (SELECT 1 FROM postroom.outbox)
UNION ALL
SELECT 'inbox' WHERE EXISTS (SELECT 1 FROM postroom.inbox)
UNION ALL
SELECT 'dead_letter' WHERE EXISTS (SELECT 1 FROM postroom.dead_letter)";

const OWNER: &str = "SELECT extowner FROM pg_catalog.pg_extension WHERE extname = 'postroom'";

const NAME: &CStr = c"postroom";

/// The event trigger before DROP EXTENSION and DROP OWNED, of whatever is dropped.
#[pg_extern(sql = false)]
fn _guard_drop(fcinfo: pg_sys::FunctionCallInfo) -> core::result::Result<(), ErrorReport> {
    // SAFETY: the server passes a valid call; its context is checked for what it is.
    let command = unsafe {
        let context = (*fcinfo).context;
        if context.is_null() || (*context).type_ != pg_sys::NodeTag::T_EventTriggerData {
            Err(Error::Unsupported {
                function: "_guard_drop",
                problem: "outside an event trigger",
                hint: "The server calls it before the extension is dropped.",
            })?;
        }
        (*context.cast::<pg_sys::EventTriggerData>()).parsetree
    };
    if !config::allow_drop() && drops_us(command)? {
        refuse_undelivered()?;
    }
    Ok(())
}

fn refuse_undelivered() -> Result<()> {
    let found = plan::rows(UNDELIVERED, &[], |row| row.must::<String>(1))?;
    if found.is_empty() {
        return Ok(());
    }
    Err(Error::Undelivered { tables: found })
}

fn drops_us(command: *mut pg_sys::Node) -> Result<bool> {
    // SAFETY: the parse tree of the command that is about to run; each node is checked for what it is.
    unsafe {
        match (*command).type_ {
            pg_sys::NodeTag::T_DropStmt => Ok(names_us(command.cast())),
            pg_sys::NodeTag::T_DropOwnedStmt => is_of_our_owner(command.cast()),
            _ => Ok(false),
        }
    }
}

/// # Safety
/// The statement is a valid node.
unsafe fn names_us(statement: *mut pg_sys::DropStmt) -> bool {
    // SAFETY: names of extensions are strings of the parser.
    unsafe {
        (*statement).removeType == pg_sys::ObjectType::OBJECT_EXTENSION
            && PgList::<pg_sys::String>::from_pg((*statement).objects)
                .iter_ptr()
                .any(|name| CStr::from_ptr((*name).sval) == NAME)
    }
}

/// # Safety
/// The statement is a valid node.
unsafe fn is_of_our_owner(statement: *mut pg_sys::DropOwnedStmt) -> Result<bool> {
    let owners = plan::rows(OWNER, &[], |row| row.get::<pg_sys::Oid>(1))?;
    // SAFETY: the roles of the statement are role specifications of the parser; an unknown one raises
    // the error that the command itself would raise.
    Ok(unsafe {
        PgList::<pg_sys::RoleSpec>::from_pg((*statement).roles)
            .iter_ptr()
            .any(|role| owners.contains(&Some(pg_sys::get_rolespec_oid(role, false))))
    })
}

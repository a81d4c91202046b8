//! Rights by the kind of work a role does.

use crate::error::{Error, Result, required_text};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use pgrx::{PgList, pg_sys};
use std::ffi::{CStr, CString};

// What each kind may do, beside what all may. `role` stands for the one that is granted to.
const ALL: &CStr = c"
GRANT USAGE ON SCHEMA postroom TO role;
GRANT EXECUTE ON FUNCTION postroom.version, postroom.stream_id_of, postroom.new_id, postroom.partition_of,
      postroom.lane_of TO role";
const PRODUCER: &CStr = c"
GRANT EXECUTE ON FUNCTION postroom.send, postroom.store_outbox_messages, postroom.store_outbox_arrays,
      postroom.append_events, postroom.try_append_events, postroom.read_stream, postroom.stream_version TO role";
const WORKER: &CStr = c"
GRANT EXECUTE ON FUNCTION postroom.register_instance, postroom.heartbeat_instance,
      postroom.deregister_instance, postroom.mark_idle, postroom.mark_busy,
      postroom.claim_outbox, postroom.complete_outbox, postroom.fail_outbox, postroom.release_outbox,
      postroom.claim_inbox, postroom.complete_inbox, postroom.complete_inbox_now, postroom.fail_inbox,
      postroom.release_inbox, postroom.renew_claims, postroom.read_claims, postroom.process_work_batch,
      postroom.store_inbox_messages, postroom.store_inbox_arrays, postroom.get_checkpoint,
      postroom.set_checkpoint, postroom.run_upkeep TO role";
const READER: &CStr = c"
GRANT EXECUTE ON FUNCTION postroom.read_stream, postroom.stream_version, postroom.read_events,
      postroom.stable_position, postroom.health, postroom._mutex_holders,
      postroom._announcements TO role;
GRANT SELECT ON postroom.backlog, postroom.outbox_status, postroom.inbox_status, postroom.stream_status,
      postroom.instance_status, postroom.lane_status, postroom.claim_status, postroom.dead_letter_summary,
      postroom.message_status, postroom.append_fence TO role";
const OPERATOR: &CStr = c"
GRANT EXECUTE ON FUNCTION postroom.read_dead_letters, postroom.replay_dead_letters,
      postroom.purge_dead_letters, postroom.bury, postroom.hold_stream, postroom.resume_stream,
      postroom.run_upkeep, postroom.health, postroom.verify, postroom.read_claims, postroom._mutex_holders,
      postroom._announcements TO role;
GRANT SELECT ON postroom.backlog, postroom.outbox_status, postroom.inbox_status, postroom.stream_status,
      postroom.instance_status, postroom.lane_status, postroom.claim_status, postroom.dead_letter_summary,
      postroom.message_status, postroom.append_fence, postroom.replay_log TO role";

#[pg_extern(sql = false)]
fn grant_usage(
    role: Option<String>,
    kind: Option<String>,
) -> core::result::Result<(), ErrorReport> {
    let role = required_text("role", role)?;
    let grants = grants_of(&required_text("kind", kind)?)?;
    for text in [ALL, grants] {
        grant(text, &role)?;
    }
    Ok(())
}

fn grants_of(kind: &str) -> Result<&'static CStr> {
    match kind {
        "producer" => Ok(PRODUCER),
        "worker" => Ok(WORKER),
        "reader" => Ok(READER),
        "operator" => Ok(OPERATOR),
        _ => Err(Error::bad(
            "kind",
            format!("{kind} is no kind of role"),
            "Pass producer, worker, reader or operator; approvers come with the intake.",
        )),
    }
}

/// Executes constant GRANT statements for a role. A utility statement takes no parameters, so the role is
/// put into the parsed statement: no SQL is made of a name. The server checks the caller's rights as if
/// he had typed it.
fn grant(text: &CStr, role: &str) -> Result<()> {
    let role = CString::new(role)
        .map_err(|_| Error::bad("role", "holds a NUL", "Pass the name of a role."))?;
    // SAFETY: the nodes are this backend's, made by the parser just now, and checked for what they are;
    // they and the copy of the name live in the memory of the call.
    unsafe {
        let statements = pg_sys::raw_parser(text.as_ptr(), pg_sys::RawParseMode::RAW_PARSE_DEFAULT);
        for raw in PgList::<pg_sys::RawStmt>::from_pg(statements).iter_ptr() {
            let statement = (*raw).stmt;
            if (*statement).type_ != pg_sys::NodeTag::T_GrantStmt {
                return Err(Error::Bug("a grant is no grant".into()));
            }
            let statement = statement.cast::<pg_sys::GrantStmt>();
            for grantee in PgList::<pg_sys::RoleSpec>::from_pg((*statement).grantees).iter_ptr() {
                (*grantee).rolename = pg_sys::pstrdup(role.as_ptr());
            }
            pg_sys::ExecuteGrantStmt(statement);
            // The next statement may change the same row of the catalog.
            pg_sys::CommandCounterIncrement();
        }
    }
    Ok(())
}

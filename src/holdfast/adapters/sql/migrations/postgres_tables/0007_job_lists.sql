-- Two indexes serve every choice of caller, state and kind (SEC-002); a list without one of them is merged from all its values.
DROP INDEX job_by_caller;
DROP INDEX job_by_state;
DROP INDEX job_by_kind;
CREATE INDEX job_by_caller ON job (caller, state, kind, event);
CREATE INDEX job_by_state ON job (state, kind, event);

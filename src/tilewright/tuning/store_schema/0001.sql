-- What was measured, on what, by which config.  What many rows share stands once.

CREATE TABLE device (
    id          INTEGER PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    name        TEXT NOT NULL,
    backend     TEXT NOT NULL,
    UNIQUE (fingerprint, name, backend)
) STRICT;

CREATE TABLE problem (
    id        INTEGER PRIMARY KEY,
    m         INTEGER NOT NULL,
    n         INTEGER NOT NULL,
    k         INTEGER NOT NULL,
    precision TEXT NOT NULL,
    trans_a   TEXT NOT NULL,
    trans_b   TEXT NOT NULL,
    lda       INTEGER NOT NULL,
    ldb       INTEGER NOT NULL,
    ldc       INTEGER NOT NULL,
    UNIQUE (m, n, k, precision, trans_a, trans_b, lda, ldb, ldc)
) STRICT;

-- The hash is not unique: 48 bits may meet twice, parameters cannot.
CREATE TABLE config (
    id         INTEGER PRIMARY KEY,
    hash       TEXT NOT NULL,
    stencil    TEXT NOT NULL,
    parameters TEXT NOT NULL CHECK (json_valid(parameters)),
    UNIQUE (stencil, parameters)
) STRICT;

CREATE TABLE environment (
    id    INTEGER PRIMARY KEY,
    facts TEXT NOT NULL UNIQUE CHECK (json_valid(facts))
) STRICT;

-- AUTOINCREMENT: a number that people wrote down never comes to mean another row.
-- detail stands last so that reading the other columns skips its overflow pages.
CREATE TABLE measurement (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    digest          TEXT NOT NULL UNIQUE,
    device_id       INTEGER NOT NULL REFERENCES device (id),
    problem_id      INTEGER NOT NULL REFERENCES problem (id),
    config_id       INTEGER NOT NULL REFERENCES config (id),
    environment_id  INTEGER NOT NULL REFERENCES environment (id),
    version         INTEGER NOT NULL,
    status          TEXT NOT NULL,
    stage           TEXT NOT NULL,
    created         TEXT NOT NULL,
    median_ns       REAL,
    error           REAL,
    compile_seconds REAL,
    reason          TEXT NOT NULL,
    times_ns        TEXT NOT NULL CHECK (json_valid(times_ns)),
    detail          TEXT NOT NULL
) STRICT;

CREATE INDEX measurement_asked ON measurement (device_id, problem_id, version);
CREATE INDEX measurement_config ON measurement (config_id);
CREATE INDEX measurement_problem ON measurement (problem_id);
CREATE INDEX measurement_environment ON measurement (environment_id);

CREATE VIEW result AS
SELECT measurement.id, device.fingerprint AS device, device.name AS device_name,
       device.backend, problem.m, problem.n, problem.k, problem.precision,
       problem.trans_a, problem.trans_b, problem.lda, problem.ldb, problem.ldc,
       config.stencil, config.hash AS config, config.parameters,
       environment.facts AS environment, measurement.device_id, measurement.problem_id,
       measurement.version, measurement.status, measurement.stage, measurement.created,
       measurement.median_ns, measurement.error, measurement.compile_seconds,
       measurement.reason, measurement.times_ns, measurement.detail
FROM measurement
JOIN device ON device.id = measurement.device_id
JOIN problem ON problem.id = measurement.problem_id
JOIN config ON config.id = measurement.config_id
JOIN environment ON environment.id = measurement.environment_id;

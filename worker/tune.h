// `ringworker tune`: has the backend time the kernels of a job and writes its kernel table. Needs
// no coordinator and no dataset, makes no core and starts no thread; main thread only. The form of
// the table is the backend's.
#pragma once

#include <ostream>
#include <string>

#include "common/status.h"
#include "worker/backend/backend.h"
#include "worker/tune_subject.h"

namespace ringmaster::worker {

// Adds to the table in file `path` (made when it is not there) the rows that `subject` lacks in it.
// After each program the file is replaced as a whole, where there are new rows; also by what was
// found before an error. `out` gets a line for each program and each row.
[[nodiscard]] Status TunePrograms(const TuneSubject& subject, const TuneOptions& options,
                                  const std::string& path, Backend* backend, std::ostream& out);

// The whole command; `argv[0]` is the word `tune`. The exit code: 2 when the command line or the
// job file is wrong, 1 for anything else that is.
[[nodiscard]] int TuneMain(int argc, const char* const* argv);

}  // namespace ringmaster::worker

// The files of a script, as they travel with its job: read where the job is submitted, checked
// where they come from elsewhere. Reads beneath the folder of the job file alone; thread-safe (free
// functions).
#pragma once

#include <cstdint>
#include <string>

#include "common/status.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::job {

inline constexpr uint64_t kMostScriptBytes = 2 << 20;  // of all files together
inline constexpr int kMostScriptFiles = 1000;

// Fills script->files from `folder` (that of the job file; empty: the current one): `file`, and
// what `include` names, of a folder all beneath it; without an include the *.py beside `file`. What
// begins with a dot, and __pycache__, is not looked for. INVALID_ARGUMENT names what is missing or
// lies outside, and of too many bytes the largest files.
[[nodiscard]] Status ReadScriptFiles(const std::string& folder, v1::Script* script);

// Files as they came from elsewhere: paths relative, without `.` and `..`, ascending, each once and
// none the folder of another, within the bounds, `file` among them. INVALID_ARGUMENT.
[[nodiscard]] Status CheckScriptFiles(const v1::Script& script);

// Hex SHA-256 of what the script is: its files, which of them is run, arguments and environment.
[[nodiscard]] std::string ScriptContent(const v1::Script& script);

// Name of the interpreter that runs it, as workers have them: `default` where it names none.
[[nodiscard]] std::string InterpreterOf(const v1::Script& script);

// The same without what stands in the files: what is shown of a job.
void DropScriptContents(v1::Script* script);

}  // namespace ringmaster::job

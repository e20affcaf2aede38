#pragma once
// What every command is given: its invocation, where to write, and the ways to the hypervisor. The only place of the
// command line that reads the environment. One thread.
#include <expected>
#include <optional>
#include <string>

#include "cli/exit_code.h"
#include "cli/parse.h"
#include "node/hypervisor/client.h"
#include "view/table.h"

namespace tensor_fusion::cli {

class Context {
 public:
  Context(Invocation invocation, std::string program);

  const Invocation& invocation() const { return invocation_; }
  bool json() const { return invocation_.json(); }
  const std::string& state() const { return state_; }                    // the hypervisor's state directory
  const std::string& program_folder() const { return program_folder_; }  // of this binary, links followed
  view::Style style() const;

  base::Result<node::hypervisor::Client> connect_running() const;  // to a running hypervisor only
  base::Result<node::hypervisor::Client> connect() const;          // starts one where slices outlived theirs
  base::Result<node::hypervisor::Client> ensure_running() const;   // starts one when there is none

  bool may_start_one() const;                // the state directory is not somebody else's
  base::Result<void> check_outside() const;  // of slices, from whose view no hypervisor is to be seen
  base::Result<void> check_state() const;    // a state directory that was named is there
  bool left_slices() const;                  // slices on it go on without a hypervisor; whose is not asked
  std::optional<std::string> slice() const;  // the name of the one this process is in

  void print(std::string_view text) const;             // to stdout; ends the process quietly when nobody reads it
  void print_json(const base::Json& value) const;      // one pretty document
  int fail(int code, std::string_view message) const;  // says it on stderr (in JSON too when asked for); the code
  int fail(const base::Error& error) const;

 private:
  base::Result<void> start_one() const;
  void say_slow(pid_t hypervisor) const;  // once
  void say_other_machine(pid_t hypervisor) const;

  Invocation invocation_;
  std::string program_folder_;
  std::string state_;
  mutable bool said_slow_ = false;
  mutable bool said_machine_ = false;
};

// One failure on standard error, for people or for programs; the status.
int say_failure(bool in_json, int status, std::string_view message);

std::optional<std::string> environment(const char* name);  // nothing when unset or empty

}  // namespace tensor_fusion::cli

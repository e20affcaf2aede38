#pragma once
// What a program of root may not keep if its slice is to hold: the rights by which it could undo its view, enter
// another's or make a device file of its own. Changes the calling process for good, so it is called just before exec,
// from a process of one thread.
#include <expected>
#include <string>

namespace tensor_fusion::cli {

// Gives them up for this process and all that it becomes, set-user-id programs included. Nothing happens to those that
// it has not. The error says which one the kernel keeps.
std::expected<void, std::string> give_up_capabilities();

}  // namespace tensor_fusion::cli

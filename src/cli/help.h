#pragma once
// The command table as text: the help of one command or of all, the manual page, the reference page. Pure.
#include <string>

#include "base/json.h"
#include "cli/command_table.h"

namespace tensor_fusion::cli {

std::string help_text();
std::string help_text(const Command& command);
base::Json help_json();        // every command with its options and examples, and the exit codes
std::string manual_page();     // roff, man(7)
std::string reference_page();  // Markdown

}  // namespace tensor_fusion::cli

# Completion for fish: `nodepulse` itself prints the words that can follow.
function __nodepulse_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l lines (command $words[1] __complete -- $words[2..-1] "$current" 2>/dev/null)
    set -l flag (string match -r -- '^--[^=]*=' "$current")
    set -l rest (string replace -r -- '^--[^=]*=' '' "$current")
    switch "$lines[1]"
        case ':file'
            for path in (__fish_complete_path "$rest")
                echo -- "$flag$path"
            end
        case ':directory'
            for path in (__fish_complete_directories "$rest")
                echo -- "$flag$path"
            end
        case '*'
            string join -- \n $lines
    end
end
complete -c nodepulse -f -a '(__nodepulse_complete)'

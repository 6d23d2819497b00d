"""A catalog as a person might have it: eight servers, forty tools."""

from __future__ import annotations

from pointsman.providers.base import ToolDocument

# server -> name(parameters): description
_SERVERS: dict[str, dict[str, str]] = {
    "GitHub": {
        "create_issue(repo, title, body, labels)": "Open a new issue in a repository.",
        "list_issues(repo, state, assignee)": "List the issues of a repository, filtered by state or assignee.",
        "create_pull_request(repo, head, base, title)": "Open a pull request to merge one branch into another.",
        "merge_pull_request(repo, number)": "Merge a pull request.",
        "search_code(query, language)": "Search source code across repositories.",
        "get_file_contents(repo, path, ref)": "Read a file from a repository.",
    },
    "Calendar": {
        "createEvent(title, start, end, attendees)": "Put an appointment or meeting on the calendar and invite guests.",
        "listEvents(from, to)": "Show appointments between two dates.",
        "deleteEvent(eventId)": "Cancel an appointment.",
        "findFreeSlot(attendees, durationMinutes)": "Find a time when all attendees are free.",
    },
    "Mail": {
        "send_email(to, subject, body, attachments)": "Send an e-mail message.",
        "search_inbox(query, unread_only)": "Find messages in the mailbox.",
        "reply_to_message(message_id, body)": "Answer a message.",
        "move_to_folder(message_id, folder)": "File a message in a folder.",
        "create_draft(to, subject, body)": "Write a message without sending it.",
    },
    "World clock": {
        "get_current_time(timezone)": "Current time in a given timezone.",
        "convert_time(source_timezone, target_timezone, time)": "Convert a time between timezones.",
    },
    "Weather": {
        "getForecast(city, days)": "Weather forecast for the coming days: temperature, rain, wind.",
        "getCurrentConditions(city)": "Weather right now at a place.",
        "getAirQuality(city)": "Pollution and pollen levels.",
        "listAlerts(region)": "Storm and flood warnings.",
    },
    "Postgres": {
        "run_query(sql)": "Run a read-only SQL query against the database.",
        "list_tables(schema)": "List the tables of the database.",
        "describe_table(table)": "Show the columns and types of a table.",
        "explain_query(sql)": "Show the execution plan of a query, to see why it is slow.",
        "create_backup(target)": "Dump the whole database to a file.",
    },
    "Files": {
        "read_file(path)": "Read the contents of a file on disk.",
        "write_file(path, content)": "Create a file or overwrite it.",
        "list_directory(path)": "List files and folders.",
        "move_file(source, destination)": "Rename or move a file.",
        "search_files(pattern, path)": "Find files whose name matches a pattern.",
        "delete_file(path)": "Remove a file for good.",
        "get_file_info(path)": "Size, owner and modification date of a file.",
    },
    "Shop": {
        "search_products(keywords, maxPrice)": "Look for articles in the store.",
        "add_to_cart(productId, quantity)": "Put an article into the shopping cart.",
        "checkout(cartId, paymentMethod)": "Pay for the cart and place the order.",
        "track_order(orderId)": "Where is the parcel, and when will it be delivered.",
        "refund_order(orderId, reason)": "Give the customer the money back.",
        "translate_text(text, targetLanguage)": "Translate a product text into another language.",
        "天气预报(城市)": "查询城市的天气预报",
    },
}


def small_catalog() -> list[ToolDocument]:
    documents = []
    for server, tools in _SERVERS.items():
        for signature, description in tools.items():
            name, _, rest = signature.partition("(")
            parameters = {parameter: {"type": "string"} for parameter in rest.rstrip(")").split(", ")}
            schema = {"type": "object", "properties": parameters}
            documents.append(ToolDocument(f"{server.split()[0].lower()}:{name}", name, server, description, schema))
    return documents


REQUESTS: list[tuple[str, str]] = [
    ("Please file a bug report in the repository: open an issue about the crash", "github:create_issue"),
    ("which issues are assigned to me on github?", "github:list_issues"),
    ("open a pull request for my branch", "github:create_pull_request"),
    ("merge the PR, I mean the pull request number 12", "github:merge_pull_request"),
    ("Could you set up a meeting with Anna tomorrow and invite her?", "calendar:createEvent"),
    ("what appointments do I have this week", "calendar:listEvents"),
    ("find a slot when everybody is free", "calendar:findFreeSlot"),
    ("cancel my appointment on Friday", "calendar:deleteEvent"),
    ("send an email to Bob", "mail:send_email"),
    ("are there unread messages in my inbox?", "mail:search_inbox"),
    ("what time is it in Tokyo", "world:get_current_time"),
    ("convert 3pm Berlin time to the timezone of New York", "world:convert_time"),
    ("will it rain in Oslo in the next days? forecast please", "weather:getForecast"),
    ("is there a storm warning", "weather:listAlerts"),
    ("which columns does the users table have", "postgres:describe_table"),
    ("why is this SQL query so slow", "postgres:explain_query"),
    ("make a backup of the database", "postgres:create_backup"),
    ("rename a file", "files:move_file"),
    ("how big is this file, and who is its owner", "files:get_file_info"),
    ("where is my parcel", "shop:track_order"),
    ("the customer wants the money back", "shop:refund_order"),
    ("translate this into another language", "shop:translate_text"),
    ("北京天气", "shop:天气预报"),
]

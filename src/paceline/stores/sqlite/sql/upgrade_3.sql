-- The words of the glossary. A program of version 3 that still runs finds its columns gone, and changes nothing.

ALTER TABLE paceline_space RENAME COLUMN ears_version TO listeners_version;
ALTER TABLE paceline_space RENAME COLUMN news TO notified;
ALTER TABLE paceline_ear RENAME TO paceline_listener;
